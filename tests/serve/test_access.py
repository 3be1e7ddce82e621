"""A server that others can reach has a key or says that it is open; one that cannot listen says why."""

import socket

import pytest
from typer.testing import CliRunner

pytest.importorskip("fastapi", reason="pip install -e '.[serve]'")
httpx = pytest.importorskip("httpx", reason="pip install -e '.[dev]'")

from eqr.cli import app  # noqa: E402
from eqr.errors import UserError  # noqa: E402
from eqr.serve.access import host_named, is_local, names_of, require_access  # noqa: E402
from eqr.serve.run import listening  # noqa: E402
from serve_running import running  # noqa: E402


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_this_machine_needs_no_key_and_answers_to_its_own_names(host):
    assert is_local(host)
    require_access(host, None, anyone=False)
    assert {
        "localhost",
        "127.0.0.1",
        "[::1]",
        host_named(host if "]" in host or ":" not in host else f"[{host}]"),
    } <= {*names_of(host)}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.7", "example.org", "localhost.example.org"])
def test_others_can_reach_it_only_with_a_key_or_on_purpose(host):
    with pytest.raises(UserError, match=r"add --key KEY, or --open"):
        require_access(host, None, anyone=False)
    require_access(host, "secret", anyone=False)
    require_access(host, None, anyone=True)
    assert names_of(host) is None


@pytest.mark.parametrize("key", ["", " ", "two words", "line\n", "schlüssel", "\udcff"])
@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_a_key_that_protects_nothing_is_refused(key, host):
    with pytest.raises(UserError, match="was the variable set"):
        require_access(host, key, anyone=True)


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        (["--host", "0.0.0.0"], {}, "--open"),
        (["--host", "0.0.0.0", "--key", ""], {}, "EQR_API_KEY"),
        (["--host", "0.0.0.0"], {"EQR_API_KEY": " "}, "EQR_API_KEY"),
        (["--host", "no.such.host.invalid", "--open"], {}, "cannot listen on no.such.host.invalid"),
        (["--host", "203.0.113.1", "--open"], {}, "choose another --host or --port"),
        (["--port", "BUSY"], {}, "another server is there; choose another --port"),
        (["--host", "localhost", "--port", "BUSY"], {}, "another server is there; choose another --port"),
        (["--on", "ray", "--port", "BUSY"], {}, "another server is there; choose another --port"),
    ],
)
def test_the_command_says_so_before_it_loads_anything(options, environment, words, monkeypatch):
    monkeypatch.setattr("eqr.serve.run.load", lambda *_, **__: pytest.fail("it loaded the models"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        given = ["serve", "sudoku-4x4", *(port if one == "BUSY" else one for one in options)]
        found = CliRunner().invoke(app, given, env=environment)
    assert isinstance(found.exception, UserError)
    assert words in str(found.exception)


def test_any_free_port_is_found_and_is_one_for_all_addresses():
    with listening("localhost", 0) as sockets:
        assert len({one.getsockname()[1] for one in sockets}) == 1


def test_case_and_a_final_dot_of_a_host_name_do_not_count():
    with running(hosts=names_of("127.0.0.1")) as (url, _):
        port = url.rpartition(":")[2]
        for name in ("localhost", "LOCALHOST", "LocalHost.", "127.0.0.1", "[::1]"):
            for host in (name, f"{name}:{port}", f"{name}:9"):
                assert httpx.get(url + "/healthz", headers={"Host": host}).status_code == 200, host
        for name in (
            "",
            "localhost.evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "[::2]",
            "::1",
        ):
            assert httpx.get(url + "/healthz", headers={"Host": name}).status_code == 400, name
