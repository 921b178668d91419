# The image of all three programs: `make image`, or
#   docker build --build-arg REVISION="$(git describe --always --dirty)" --tag muster:0.2.0 .
# The base is pinned by its exact version. Its digest isn't known where this file is kept, for that a registry has to be
# asked: whoever releases appends it (docs/releasing.md). To build with one: make image BASE=python:3.11.13-slim-bookworm@sha256:…
ARG BASE=python:3.11.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /sources
COPY requirements/build.txt requirements/image.txt requirements/
# Wheels alone, so that no compiler is asked for; each by its hash. The result has no pip, and not the package kubernetes,
# which no program of the chart imports.
RUN python -m venv /opt/build && python -m venv --without-pip /opt/muster \
 && /opt/build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/build.txt \
 && /opt/build/bin/pip --python /opt/muster/bin/python install --no-cache-dir --only-binary :all: --require-hashes -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY muster/ muster/
COPY webhooks/ webhooks/
COPY scheduler/ scheduler/
COPY certs/ certs/
COPY deploy/ deploy/
ARG REVISION=
RUN printf '%s' "$REVISION" > muster/revision.txt \
 && /opt/build/bin/hatchling build -t wheel -d /wheels \
 && /opt/build/bin/pip --python /opt/muster/bin/python install --no-cache-dir --no-deps --no-index /wheels/muster_scheduler-*.whl

FROM ${BASE}
ARG REVISION=
LABEL org.opencontainers.image.title=Muster \
      org.opencontainers.image.version=0.2.0 \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /opt/muster /opt/muster
# Nothing is written where the programs are, and their words aren't held back.
ENV PATH=/opt/muster/bin:$PATH HOME=/ PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Any other user id will do.
USER 65532:65532
ENTRYPOINT ["muster"]
CMD ["--help"]
