"""An estimate of what a protocol needs on GPUs: arithmetic, decoding, network, memory and disk, from measured figures.

    python examples/scale_model.py

Nothing here runs on a GPU. The assumptions about the hardware are constants at the top: replace them with yours.
"""

from __future__ import annotations

from dataclasses import dataclass

# Of ResNet-18 at 224 pixels, counted: a forward is 3.64 GFLOP, its backward twice that; the teacher is a forward.
FORWARD, PARAMETERS, DIMENSION, PROXIES = 3.64e9, 11.2e6, 512, 10
PHOTO = 110e3  # bytes of an ImageNet photo on disk, the mean of the files
DECODED = 430  # photos a second and core, cropped to 224 pixels (docs/performance.md)
# Assumed.
SUSTAINED = 40e12  # FLOP/s of one GPU in bfloat16, of some 300 on paper
BATCH = 128  # the paper's; --batch-size is that of all GPUs together


@dataclass(frozen=True)
class Protocol:
    """Classes in tasks, as in a run."""

    name: str
    base: int
    steps: int
    increment: int
    images: int = 1280  # of a class
    tested: int = 50
    memory_per_class: int | None = 20
    memory_total: int = 0
    epochs: int = 90
    finetune_epochs: int = 20

    def memory(self, seen: int) -> int:
        return seen * self.memory_per_class if self.memory_per_class else self.memory_total

    def step(self, old: int, new: int) -> dict[str, float]:
        """Images and FLOP of one task that adds `new` classes to `old` ones."""
        seen = old + new
        trained = (new * self.images + self.memory(old)) * self.epochs
        tuned = self.memory(seen) * self.finetune_epochs if old else 0
        passed = new * self.images * 2 + self.memory(seen) * 2 + seen * self.tested  # imprint, herd, means, test
        classify = 2 * seen * PROXIES * DIMENSION  # forward; again in backward, and its gradient
        flop = trained * (FORWARD * (4 if old else 3) + 3 * classify) + tuned * (FORWARD + 3 * classify)
        return {
            "images": trained + tuned + passed,
            "flop": flop + passed * (FORWARD + classify),
            "updates": trained / BATCH + tuned / BATCH,
        }

    def total(self) -> dict[str, float]:
        tasks = [(0, self.base)] + [(self.base + i * self.increment, self.increment) for i in range(self.steps)]
        parts = [self.step(*task) for task in tasks]
        return {key: sum(part[key] for part in parts) for key in parts[0]} | {
            "first": parts[1]["flop"],
            "last": parts[-1]["flop"],
            "seen": self.base + self.steps * self.increment,
        }


def hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds < 3600 * 100 else f"{seconds / 86400:,.0f} days"


def describe(protocol: Protocol) -> list[tuple[str, str]]:
    total = protocol.total()
    seen = int(total["seen"])
    alone = total["flop"] / SUSTAINED
    rate = total["images"] / alone  # photos a second of one GPU
    sent = 2 * 7 / 8 * 4 * PARAMETERS  # bytes that each of 8 GPUs sends and gets in a ring, an update
    update = alone / 8 / total["updates"]
    exemplars = protocol.memory(seen)
    return [
        ("images through the network", f"{total['images'] / 1e6:,.0f} million"),
        ("arithmetic", f"{total['flop']:.1e} FLOP"),
        ("one GPU", hours(alone)),
        ("eight GPUs, without other limits", hours(alone / 8)),
        ("the last step costs", f"{total['last'] / total['first']:.1f} times the first"),
        ("decoding for one / eight GPUs", f"{rate / DECODED:.0f} / {8 * rate / DECODED:.0f} cores"),
        ("an update on eight GPUs", f"{1e3 * update:.1f} ms of arithmetic, {sent / 1e6:.0f} MB each way"),
        ("the bandwidth that this needs", f"{sent / update / 1e9:.1f} GB/s"),
        ("proxies", f"{seen * PROXIES * DIMENSION * 4 / 1e6:,.0f} MB"),
        ("exemplars on disk", f"{exemplars * PHOTO / 1e9:,.1f} GB"),
        ("photos on disk", f"{seen * protocol.images * PHOTO / 1e9:,.0f} GB"),
    ]


PROTOCOLS = [
    Protocol("ImageNet1000, 500 + 10 x 50", 500, 10, 50),
    Protocol("10,000 classes, 200 x 50", 50, 199, 50),
    Protocol("the same, memory_total 20,000", 50, 199, 50, memory_per_class=None, memory_total=20_000),
]


def main() -> None:
    tables = [dict(describe(protocol)) for protocol in PROTOCOLS]
    print(f"| | {' | '.join(protocol.name for protocol in PROTOCOLS)} |")
    print(f"|---|{'---|' * len(PROTOCOLS)}")
    for row in tables[0]:
        print(f"| {row} | {' | '.join(table[row] for table in tables)} |")


if __name__ == "__main__":
    main()
