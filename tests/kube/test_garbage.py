from __future__ import annotations

import gc

import pytest

from muster.kube.garbage import uncollected


@pytest.fixture(autouse=True)
def _collecting():
    gc.enable()
    yield
    gc.enable()


@uncollected()
def fail():
    assert not gc.isenabled()
    raise ZeroDivisionError


def test_the_collector_is_off_within_and_on_again_after_a_failure():
    with pytest.raises(ZeroDivisionError):
        fail()
    assert gc.isenabled()


def test_one_within_another_and_within_what_turned_it_off_leave_it_off():
    with uncollected():
        with uncollected():
            pass
        assert not gc.isenabled()
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()
