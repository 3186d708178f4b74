"""Export a model for other programs: one graph from pixels to confidences.

input    pixels     uint8 (N, H, W, 3), RGB: upright photos of one size, any size. Scaling, cutting out the centre
                    and normalisation are inside. Or uint8 (N, 3, S, S) of exactly the network's size: `Input`
output   cnn        float (N, classes), the confidences of the classifier
         nme        float (N, classes), those of the nearest mean
         familiar   float (N,), how much a photo looks like those the model knows
         unknown    bool (N,), whether that is so little that it seems to be of none of the classes
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from podnet.data.decode import shorter_side
from podnet.engine.extraction import Scores
from podnet.errors import PodnetError, in_words, printable
from podnet.memory.means import nme_scores
from podnet.metrics import INFERENCES, REJECT
from podnet.model.export_check import Checked, Run, check
from podnet.model.measure import best_inference, highest
from podnet.model.model import Model
from podnet.model.predict import chances
from podnet.nets.network import frozen_copy

if TYPE_CHECKING:
    from onnx import ModelProto

Format = Literal["onnx", "torch"]
Input = Literal["photo", "square"]
ENDINGS: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}
NEEDED = {"onnx": ("onnx", "onnxscript", "onnxruntime")}
OUTPUTS = (*INFERENCES, "familiar", "unknown")

# From photos of any size to squares, as `data.decode` does it. ONNX rounds halves to even, like Python.
CENTRE = """\
<ir_version: {ir}, opset_import: ["": {opset}]>
centre (uint8[photos, height, width, 3] pixels) => (uint8[photos, 3, {size}, {size}] square)
<int64[1] shorter = {{{shorter}}}, int64[1] size = {{{size}}}, float[1] two = {{2.0}}, int64[2] axes = {{1, 2}}>
{{
    sides = Shape <start = 1, end = 3> (pixels)
    least = ReduceMin (sides)
    product = Mul (sides, shorter)
    scaled = Div (product, least)
    small = Resize <mode = "linear", antialias = 1, axes = [1, 2]> (pixels, , , scaled)
    beyond = Sub (scaled, size)
    real = CastLike (beyond, two)
    half = Div (real, two)
    rounded = Round (half)
    first = CastLike (rounded, size)
    end = Add (first, size)
    cut = Slice (small, first, end, axes)
    square = Transpose <perm = [0, 3, 1, 2]> (cut)
}}"""


@dataclass(frozen=True)
class Wanted:
    """What to export."""

    kind: Format = "onnx"
    input: Input = "photo"
    reject: float = REJECT  # share of photos of known classes that may be called unknown

    def __post_init__(self) -> None:
        if self.kind == "torch" and self.input == "photo":
            raise PodnetError("--format torch takes only squares of the network's size; use --input square.")


class Exported(nn.Module):
    """The model as one function of squares of pixels, (N, 3, S, S) uint8."""

    mean: Tensor
    std: Tensor
    means: Tensor

    def __init__(self, model: Model, reject: float) -> None:
        super().__init__()
        learner = model.learner
        assert learner.means is not None
        self.network = frozen_copy(learner.network).cpu()
        for name in ("mean", "std"):
            value = torch.tensor(getattr(learner.transform, name)).view(1, -1, 1, 1)
            self.register_buffer(name, 255 * value)
        self.register_buffer("means", learner.means.cpu())
        self.model = model
        self.threshold = model.familiarity.threshold(reject)

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        outputs = self.network((pixels.float() - self.mean) / self.std)
        scores = Scores(outputs.logits, nme_scores(outputs.embedding, self.means), pixels.new_empty(0))
        familiar = self.model.familiarity(highest(scores))
        return *chances(self.model, scores, familiar).values(), familiar, familiar < self.threshold


def describe(model: Model, wanted: Wanted) -> dict[str, str]:
    """What a program must know to use the graph, as strings."""
    size = model.settings.image_size
    scaling = f"scale the shorter side to {shorter_side(size)}, bilinear with antialiasing; cut out the centre"
    inputs = {
        "photo": ("(N, H, W, 3), RGB, 0 to 255, any size", "turn upright by EXIF; the graph does the rest"),
        "square": (f"(N, 3, {size}, {size}), RGB, 0 to 255", f"turn upright by EXIF; {scaling}"),
    }
    pixels, preprocessing = inputs[wanted.input]
    threshold = model.familiarity.threshold(wanted.reject)
    return {
        "classes": json.dumps(model.names),
        "input": f"pixels: uint8 {pixels}; the graph normalises them",
        "preprocessing": preprocessing,
        "outputs": "cnn, nme: confidences (N, classes) of the two inferences; unknown (N,): familiar (N,) < threshold",
        "better_inference": best_inference(model.history[-1]),
        "reject": str(wanted.reject if len(model.familiar) else 0.0),
        "threshold": str(threshold),
    }


def export(model: Model, path: Path, wanted: Wanted) -> Checked:
    """Check the exported model and write the file."""
    missing = [name for name in NEEDED.get(wanted.kind, ()) if find_spec(name) is None]
    if missing:
        raise PodnetError(f"export to {wanted.kind} needs {in_words(missing)}: pip install 'podnet[onnx]'.")
    unfinished = path.with_name(f"exporting.{path.name}")  # torch refuses a name that begins with its only dot
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's warnings about itself
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # about packages that are not needed
            run = (_write_onnx if wanted.kind == "onnx" else _write_torch)(model, unfinished, wanted)
        checked = check(model, run, model.familiarity.threshold(wanted.reject), whole=wanted.input == "photo")
        os.replace(unfinished, path)
    except OSError as error:
        raise PodnetError(f"cannot write {printable(path)}: {error.strerror}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return checked


def _write_onnx(model: Model, path: Path, wanted: Wanted) -> Run:
    import onnx
    import onnxruntime

    program = torch.onnx.export(
        Exported(model, wanted.reject).eval(),
        (_example(model),),
        input_names=["pixels" if wanted.input == "square" else "square"],
        output_names=list(OUTPUTS),
        dynamic_shapes=({0: torch.export.Dim("photos")},),
        custom_translation_table={torch.ops.aten._cdist_forward.default: _distances()},
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    graph = program.model_proto
    if wanted.input == "photo":
        graph = _from_photos(graph, model.settings.image_size)
    onnx.helper.set_model_props(graph, describe(model, wanted))
    onnx.save(graph, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(pixels: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.from_numpy(table) for table in session.run(list(OUTPUTS), {"pixels": pixels.numpy()}))

    return run


def _from_photos(graph: ModelProto, size: int) -> ModelProto:
    """The graph of squares, preceded by what makes them of photos."""
    from onnx import compose, parser

    opset = next(each.version for each in graph.opset_import if each.domain == "")
    text = CENTRE.format(ir=graph.ir_version, opset=opset, size=size, shorter=shorter_side(size))
    before = compose.add_prefix(parser.parse_model(text), "centre.", rename_inputs=False, rename_outputs=False)
    return compose.merge_models(before, graph, io_map=[("square", "square")])


def _distances() -> Callable[..., Any]:
    """Euclidean distances between the rows of two matrices, which ONNX lacks."""
    from onnxscript import opset18

    op: Any = opset18

    def distances(x: Any, y: Any, p: float, compute_mode: int | None) -> Any:
        squares = op.Add(op.ReduceSumSquare(x, [1]), op.Transpose(op.ReduceSumSquare(y, [1])))
        products = op.MatMul(x, op.Transpose(y))
        return op.Sqrt(op.Relu(op.Sub(squares, op.Add(products, products))))

    return distances


def _write_torch(model: Model, path: Path, wanted: Wanted) -> Run:
    shapes = ({0: torch.export.Dim("photos")},)
    program = torch.export.export(Exported(model, wanted.reject).eval(), (_example(model),), dynamic_shapes=shapes)
    torch.export.save(program, path, extra_files={"podnet.json": json.dumps(describe(model, wanted))})
    return torch.export.load(path).module()


def _example(model: Model) -> Tensor:
    return torch.zeros(2, 3, model.settings.image_size, model.settings.image_size, dtype=torch.uint8)
