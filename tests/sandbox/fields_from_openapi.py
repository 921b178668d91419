"""Makes muster/sandbox/fields.json of the built-in kinds' fields, from a real server's OpenAPI document.

Usage: python tests/sandbox/fields_from_openapi.py openapi-v2.json openapi-v3-*.json > muster/sandbox/fields.json
where openapi-v2.json is what `kubectl get --raw /openapi/v2` gives, and the others are what it gives of each group's
/openapi/v3/...: only these say which fields are in every object, since Go has no absent struct.
"""

import json
import sys
from pathlib import Path

from muster.sandbox.core.builtins import BUILTIN

BEYOND = ("/v1/Binding", "policy/v1/Eviction", "autoscaling/v1/Scale", "/v1/DeleteOptions")
TEXT_FORMATS = {"byte": "bytes", "date-time": "time", "int-or-string": "intorstring"}
SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intorstring",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "time",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "any",
}

# Fields that are in every object without being structs: the document doesn't tell them from those that may be absent.
EMPTY = {
    "core.v1.Event": ("eventTime", "firstTimestamp", "lastTimestamp", "reportingComponent", "reportingInstance"),
    "events.v1.Event": ("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"),
}


class Collector:
    def __init__(self, definitions, always):
        self.definitions = definitions
        self.always = always
        self.types = {}

    def type(self, schema):
        name = schema.get("$ref", "").rpartition("/")[2]
        if name:
            return SCALARS.get(name) or self.named(name)
        if schema.get("type") == "array":
            return "[]" + self.type(schema["items"])
        if "additionalProperties" in schema:
            return "{}" + self.type(schema["additionalProperties"])
        return scalar(schema)

    def named(self, name):
        definition = self.definitions[name]
        if "properties" not in definition:
            return scalar(definition)
        short = ".".join(name.split(".")[-3:])
        if short not in self.types:
            fields = self.types[short] = {}
            fields |= {
                field: self.field(schema, (name, field) in self.always)
                for field, schema in definition["properties"].items()
            }
        return short

    def field(self, schema, always):
        traits = {
            "always": always,
            "strategy": schema.get("x-kubernetes-patch-strategy"),
            "mergeKey": schema.get("x-kubernetes-patch-merge-key"),
            "list": schema.get("x-kubernetes-list-type"),
            "keys": schema.get("x-kubernetes-list-map-keys"),
            "map": schema.get("x-kubernetes-map-type")
            or self.definitions.get(schema.get("$ref", "").rpartition("/")[2], {}).get("x-kubernetes-map-type"),
        }
        items = schema.get("items", {}).get("$ref", "").rpartition("/")[2]
        traits["entries"] = self.definitions.get(items, {}).get("x-kubernetes-map-type")
        traits = {key: value for key, value in traits.items() if value}
        return [self.type(schema), traits] if traits else [self.type(schema)]


def scalar(schema):
    if schema.get("type") == "string":
        return TEXT_FORMATS.get(schema.get("format"), "string")
    return schema["type"] if schema.get("type") in {"integer", "number", "boolean"} else "any"


def fields_in_every_object(file):
    for name, definition in json.loads(Path(file).read_text(encoding="utf-8"))["components"]["schemas"].items():
        required = definition.get("required", ())
        for field, schema in definition.get("properties", {}).items():
            collection = schema.get("type") == "array" or "additionalProperties" in schema
            struct = "allOf" in schema and schema.get("default") == {}
            short = ".".join(name.split(".")[-3:])
            if field in EMPTY.get(short, ()) or struct or (collection and field in required):
                yield name, field


def main():
    definitions = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["definitions"]
    always = {each for file in sys.argv[2:] for each in fields_in_every_object(file)}
    collector = Collector(definitions, always)
    wanted = {f"{r.group}/{r.version}/{r.kind}" for r in BUILTIN} | set(BEYOND)
    kinds = {}
    for name, definition in definitions.items():
        for gvk in definition.get("x-kubernetes-group-version-kind", []):
            kind = f"{gvk['group']}/{gvk['version']}/{gvk['kind']}"
            if kind in wanted:
                kinds[kind] = collector.named(name)
    if missing := wanted - set(kinds):
        raise SystemExit(f"not in the document: {', '.join(sorted(missing))}")
    lines = (f"{compact(name)}:{compact(fields)}" for name, fields in sorted(collector.types.items()))
    types = ",\n".join(lines)
    sys.stdout.write(f'{{"kinds":{compact(kinds)},"types":{{\n{types}}}}}\n')


def compact(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


main()
