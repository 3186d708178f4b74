"""Group images by class with one sort; a search per class would take classes times images."""

from torch import Tensor


def positions_by_class(targets: Tensor) -> dict[int, Tensor]:
    """The labels that occur, ascending, each with the indices of its images, ascending.

    >>> {label: own.tolist() for label, own in positions_by_class(torch.tensor([7, 4, 7])).items()}
    {4: [1], 7: [0, 2]}
    """
    order = targets.argsort(stable=True)
    labels, counts = targets[order].unique_consecutive(return_counts=True)
    return dict(zip(labels.tolist(), order.split(counts.tolist()), strict=True))
