"""`podnet export`: write a model for other programs."""

from __future__ import annotations

import argparse

from podnet.cli.model_options import output_of, reject_rate
from podnet.cli.printing import megabytes, say
from podnet.errors import PodnetError, counted, printable
from podnet.io.files import expanded
from podnet.model.loading import load_model


def export_command(known: argparse.Namespace) -> int:
    path = expanded(known.model)
    model = load_model(path)
    if known.format == "podnet":
        if known.input:
            raise PodnetError("--input is for onnx; --format podnet writes a model file. Leave --input out.")
        output = output_of(known, path.with_name(f"{path.stem}-small{path.suffix}"))
        model.save(output, exemplars=False)
        say(f"exported without photos: {printable(output)} ({megabytes(output)}); it can predict but not learn more")
        return 0
    from podnet.model.export import ENDINGS, Input, Wanted, export

    default: Input = "photo" if known.format == "onnx" else "square"
    wanted = Wanted(known.format, known.input or default, reject_rate(known))
    output = output_of(known, path.with_suffix(ENDINGS[known.format]))
    checked = export(model, output, wanted)
    made, kept = counted(checked.count, "generated image"), counted(checked.count, "photo")
    what = f"{made} (the model keeps no photos)" if checked.made else f"{kept} kept in the model"
    say(f"checked on {what}: the confidences differ by at most {checked.difference:.1e}")
    say(f"exported: {printable(output)} ({megabytes(output)})")
    return 0
