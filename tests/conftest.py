"""Being here puts `tests/` on the import path, where the small tasks and models that tests share live."""

import signal

import pytest

pytest.register_assert_rewrite("serve_laws")

# a background job of a shell ignores Ctrl-C, and so would everything the tests start from there
signal.signal(signal.SIGINT, signal.default_int_handler)
