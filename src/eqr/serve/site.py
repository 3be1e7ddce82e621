"""The page as a static site: the same files, exported models and a runtime, for any host of files.

onnxruntime-web comes from npm (`make site` fetches it); it is too large to be kept in this repository.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from eqr.errors import UserError
from eqr.files import write_json
from eqr.model.export import export_onnx
from eqr.serve.app import Served
from eqr.serve.cards import STATIC, model_card
from eqr.serve.limits import Limits

RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""What of onnxruntime-web's `dist` the page loads: no WebGPU, no WebGL."""
LIMITS = Limits(depth=256, breadth=16, segments=4096)
"""What a browser tab does in seconds."""
BY_SERVER, BY_BROWSER = (
    f'<meta name="eqr-backend" content="{kind}">'.encode() for kind in ("server", "browser")
)


def build_site(
    folder: Path, models: Sequence[Served], runtime: Path, *, done: Callable[[], object] = lambda: None
) -> None:
    """Fill a folder; `runtime` is the `dist` of onnxruntime-web. `done` is called after each graph."""
    missing = [name for name in RUNTIME if not (runtime / name).is_file()]
    if missing:
        raise UserError(f"{runtime} has no {missing[0]}; `make site` fetches onnxruntime-web by npm")
    for name in ("style.css", "icon.svg"):
        shutil.copyfile(STATIC / name, folder / name)
    page = (STATIC / "index.html").read_bytes()
    assert BY_SERVER in page
    (folder / "index.html").write_bytes(page.replace(BY_SERVER, BY_BROWSER))
    shutil.copytree(STATIC / "js", folder / "js", ignore=shutil.ignore_patterns("docs.js"))
    (folder / "ort").mkdir()
    for name in RUNTIME:
        shutil.copyfile(runtime / name, folder / "ort" / name)
    cards = []
    for model in models:
        place = f"models/{model.name}"
        export_onnx(model.reasoner, folder / place, {}, done=done)
        about = model_card(model.name, model.reasoner, model.task, LIMITS)
        noisy = model.reasoner.config.path.noise > 0  # a graph without noise cannot be given any
        cards.append({**about, "folder": place, "noisy": noisy})
    write_json(folder / "models.json", {"models": cards})
