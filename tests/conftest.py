"""Being here puts `tests/` on the import path, where the small tasks and models that tests share live."""

import signal

import pytest

pytest.register_assert_rewrite("serve_laws")

# a background job of a shell ignores Ctrl-C, one of `nohup` the end of its terminal, and so would everything
# that the tests start from there
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
