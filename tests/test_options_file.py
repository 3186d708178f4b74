"""Files of options that would take all memory or end the process are refused with a sentence."""

import pytest

from podnet.cli import main
from podnet.errors import PodnetError
from podnet.io.options import read_options
from podnet.runs.folder import Run

LAUGHS = "\n".join(["a0: &a0 [lol]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30))])
HOSTILE = {
    "laughs": (LAUGHS, "alias"),
    "deep": ("epochs: " + "[" * 100_000, "levels"),
    "deep keys": ("? " * 100_000, "levels"),
    "digits": ("epochs: " + "9" * 5000, "digits"),
    "hexadecimal digits": ("epochs: 0x" + "f" * 5000, "too large"),
    "base 60": ("epochs: 1" + ":59" * 100_000, "10,000 characters"),
    "code": ("method: !!python/object/apply:os.system ['true']", "constructor"),
    "list": ("- 1", "name: value"),
    "nothing": ("", "name: value"),
    "no text": ("\x00", "character"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_with_a_sentence(kind, tmp_path, capsys):
    text, words = HOSTILE[kind]
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_options(tmp_path / "config.yaml")
    with pytest.raises(PodnetError, match=r"config\.yaml is damaged"):
        Run(tmp_path).config()
    assert main(["run", "--config", str(tmp_path / "config.yaml")]) == 2
    assert "is not YAML with options" in capsys.readouterr().err


def test_a_huge_file_is_not_read(tmp_path):
    with open(tmp_path / "config.yaml", "wb") as file:
        file.truncate(10**12)
    with pytest.raises(ValueError, match="bytes"):
        read_options(tmp_path / "config.yaml")


def test_a_long_class_order_is_no_huge_number(tmp_path):
    order = ",".join(map(str, range(3000)))
    (tmp_path / "o.yaml").write_text(f"order: {order}\n")
    assert read_options(tmp_path / "o.yaml") == {"order": order}


def test_ordinary_options(tmp_path):
    (tmp_path / "o.yaml").write_text("method: podnet\nlr: 1.0e-3\nsizes: [2, 3]\nname: null\nlosses: {a: [1, 2]}\n")
    found = read_options(tmp_path / "o.yaml")
    assert found == {"method": "podnet", "lr": 0.001, "sizes": [2, 3], "name": None, "losses": {"a": [1, 2]}}
