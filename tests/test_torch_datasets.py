"""Datasets of torch and torchvision, small ones made here; they are learned as any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset, random_split

from podnet import ExemplarMemory, Learner, PODNet, class_incremental
from podnet.data import Photos, from_torch
from podnet.errors import DataError, MissingPackageError
from podnet.nets.timm import _timm

COUNT = 24
ARRAYS = np.random.default_rng(0).integers(0, 256, (COUNT, 6, 5, 3), dtype=np.uint8)
LABELS = [i % 4 for i in range(COUNT)]


class Listed(torch.utils.data.Dataset):
    """Any items, by index."""

    def __init__(self, items, **attributes):
        self.items = items
        vars(self).update(attributes)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def listed(convert, labels=LABELS, arrays=ARRAYS):
    return Listed([(convert(array), label) for array, label in zip(arrays, labels, strict=True)])


def as_tensor(array):
    return torch.from_numpy(array.transpose(2, 0, 1).copy())


CONVERSIONS = {
    "pil": Image.fromarray,
    "array": lambda array: array,
    "tensor": as_tensor,
    "float": lambda array: as_tensor(array).float() / 255,  # as torchvision's ToTensor
    "double": lambda array: as_tensor(array).double() / 255,
}


@pytest.mark.parametrize("kind", CONVERSIONS)
def test_images_of_every_kind_are_the_same_pixels(kind):
    dataset = from_torch(listed(CONVERSIONS[kind]), listed(CONVERSIONS[kind], arrays=255 - ARRAYS), name="mine")
    assert dataset.name == "mine"
    assert dataset.shape == (3, 6, 5)
    assert dataset.train_images.dtype == torch.uint8
    assert (dataset.train_images.numpy() == ARRAYS.transpose(0, 3, 1, 2)).all()
    assert (dataset.test_images.numpy() == 255 - ARRAYS.transpose(0, 3, 1, 2)).all()
    assert dataset.train_targets.tolist() == LABELS
    assert dataset.class_names == ("0", "1", "2", "3")
    assert dataset.transform.mean == pytest.approx((ARRAYS / 255).mean((0, 1, 2)).tolist())


def test_grey_images_have_one_channel():
    grey = ARRAYS[..., 0]
    for convert in (Image.fromarray, torch.from_numpy, lambda array: torch.from_numpy(array)[None], lambda a: a):
        dataset = from_torch(listed(convert, arrays=grey), listed(convert, arrays=grey))
        assert dataset.shape == (1, 6, 5)
        assert (dataset.train_images[:, 0].numpy() == grey).all()


@pytest.mark.parametrize("label", [np.int64(1), torch.tensor(1), torch.tensor([1]), np.array(1)])
def test_labels_of_every_kind(label):
    data = Listed([(ARRAYS[0], label), (ARRAYS[1], 0)])
    assert from_torch(data, data).train_targets.tolist() == [1, 0]


def test_torchs_own_datasets():
    whole = TensorDataset(torch.stack([as_tensor(array) for array in ARRAYS]), torch.tensor(LABELS))
    assert from_torch(whole, whole).train_targets.tolist() == LABELS
    part = Subset(whole, [4, 5, 6, 7])
    assert from_torch(whole, part).test_images.numpy().tolist() == ARRAYS[4:8].transpose(0, 3, 1, 2).tolist()
    assert len(from_torch(ConcatDataset([whole, part]), part).train_targets) == COUNT + 4


def test_class_names_come_from_the_dataset_or_the_caller():
    named = Listed(listed(Image.fromarray).items, classes=["a", "b", "c", "d"])
    assert from_torch(named, listed(Image.fromarray)).class_names == ("a", "b", "c", "d")
    assert from_torch(Subset(named, range(8)), named).class_names == ("a", "b", "c", "d")
    assert from_torch(named, named, class_names="wxyz").class_names == ("w", "x", "y", "z")
    other = Listed(named.items, classes=["b", "a", "c", "d"])
    with pytest.raises(DataError, match=r"classes of train are a, b, c, d, those of test b, a, c, d; they must be"):
        from_torch(named, other)


def item(image=ARRAYS[0], label=0):
    return (image, label)


@pytest.mark.parametrize(
    ("items", "complaint"),
    [
        ([], "the train dataset is empty"),
        ([ARRAYS[0]], "train item 0 is ndarray without a label; give pairs of an image and its label"),
        ([item(), (ARRAYS[1],)], "train item 1 is tuple without a label"),
        ([item(label=None)], "the label of train item 0 is None; it must be a whole number"),
        ([item(label="cat")], "the label of train item 0 is 'cat'"),
        ([item(label=0.5)], "the label of train item 0 is 0.5"),
        ([item(label=10**30)], "the label of train item 0 is 10+; it must be a whole number"),
        ([item(label=True)], "the label of train item 0 is True"),
        ([item(label=torch.tensor(True))], r"the label of train item 0 is tensor\(True\)"),
        ([item(label=torch.tensor([0, 1]))], r"the label of train item 0 is tensor\(\[0, 1\]\)"),
        ([item(label=torch.tensor(1.0))], r"the label of train item 0 is tensor\(1\.\)"),
        ([item(), item(ARRAYS[0][:4])], r"train item 1 has the shape \(4, 5, 3\), the first \(6, 5, 3\).*Resize"),
        ([item(), item(ARRAYS[0][..., :1])], r"train item 1 has the shape \(6, 5, 1\)"),
        ([item(torch.randn(3, 6, 5) * 5)], "train item 0 has values from -.* without Normalize"),
        ([item(as_tensor(ARRAYS[0]).float())], r"train item 0 has values from \d+ to \d+; give uint8 pixels or floats"),
        ([item(torch.full((3, 6, 5), float("nan")))], "train item 0 has values from nan to nan"),
        ([item(ARRAYS[0] / 255.0)], r"train item 0 is float64 of shape \(6, 5, 3\); give uint8"),
        ([item(as_tensor(ARRAYS[0]).long())], "train item 0 is int64 of shape"),
        ([item(np.zeros((6, 5, 2), np.uint8))], r"train item 0 is uint8 of shape \(6, 5, 2\)"),
        ([item(as_tensor(ARRAYS[0])[None])], "train item 0 is uint8 of shape"),
        ([item("photo.png")], "train item 0 is str; give a PIL picture, a uint8 array or a tensor"),
        ([item(label=7)], "a label is 7, but there are only 1 training images"),
    ],
)
def test_what_cannot_be_learned_is_told_in_one_sentence(items, complaint):
    with pytest.raises(DataError, match=complaint) as caught:
        from_torch(Listed(items), listed(Image.fromarray))
    assert "\n" not in str(caught.value)


def test_a_stream_has_no_items():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(DataError, match="the test dataset is Stream; it needs a length, and items by their index"):
        from_torch(listed(Image.fromarray), Stream())


def photos(root: Path, count=6) -> Path:
    """A folder for each of four classes; photos of unequal sizes, whose red tells which they are."""
    for label, name in enumerate(("ant", "bee", "cat", "dog")):
        (root / name).mkdir(parents=True)
        for number in range(count):
            picture = Image.new("RGB", (20 + number, 16 + label), (20 * label + number, 0, 0))
            picture.save(root / name / f"{number}.png")
    return root


class ImageFolder(torch.utils.data.Dataset):
    """The attributes that torchvision's has."""

    def __init__(self, root, transform=None):
        self.root, self.transform, self.target_transform, self.transforms = root, transform, None, transform
        self.classes = sorted(folder.name for folder in Path(root).iterdir())
        found = [(str(path), self.classes.index(path.parent.name)) for path in sorted(Path(root).glob("*/*.png"))]
        self.samples = found
        self.targets = [label for _, label in found]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as picture:
            loaded = picture.convert("RGB")
        return (loaded if self.transform is None else self.transform(loaded)), label


def torchvisions_image_folder():
    try:
        _timm()  # imports torchvision even where its compiled part is for another torch
        from torchvision.datasets import ImageFolder as Real
    except (MissingPackageError, ImportError):
        pytest.skip("torchvision cannot be imported")
    return Real


@pytest.mark.parametrize("kind", [ImageFolder, "torchvision"])
def test_an_image_folder_stays_on_disk(kind, tmp_path, monkeypatch):
    if kind == "torchvision":
        kind = torchvisions_image_folder()
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "photos")
    folder = kind("photos")  # a relative path
    train, test = random_split(folder, [20, 4], torch.Generator().manual_seed(0))
    test = Subset(folder, [0, 6, 12, 18])
    dataset = from_torch(train, test, image_size=16, workers=0)
    monkeypatch.chdir("/")
    assert isinstance(dataset.train_images, Photos)
    assert dataset.class_names == ("ant", "bee", "cat", "dog")
    assert dataset.shape == (3, 16, 16)
    reds = [int(pixels[0, 0, 8, 8]) for _, pixels in dataset.train_images.batches(torch.arange(20).split(1))]
    assert reds == [20 * (i // 6) + i % 6 for i in train.indices]
    assert dataset.train_targets.tolist() == [i // 6 for i in train.indices]
    assert dataset.test_targets.tolist() == [0, 1, 2, 3]


def test_a_transform_is_respected(tmp_path):
    def red(picture):
        return torch.full((1, 4, 4), picture.getpixel((0, 0))[0], dtype=torch.uint8)

    folder = ImageFolder(photos(tmp_path / "photos"), red)
    dataset = from_torch(folder, folder)
    assert dataset.shape == (1, 4, 4)
    assert dataset.train_images[:, 0, 0, 0].tolist() == [20 * (i // 6) + i % 6 for i in range(24)]
    folder.transform = folder.transforms = None
    folder.loader = lambda path: Image.new("L", (4, 4), 7)  # one's own loader is not passed over either
    with pytest.raises(DataError, match="bring all images to one size"):
        from_torch(folder, folder)
    mixed = [(Image.new(mode, (4, 4)), label) for label, mode in enumerate(("RGB", "L"))]
    with pytest.raises(DataError, match="make all of them colour images"):
        from_torch(mixed, mixed)


def test_items_read_by_ones_own_class_are_respected(tmp_path):
    """It may change the pictures or the labels."""

    class Coarse(ImageFolder):
        def __getitem__(self, index):
            picture, label = super().__getitem__(index)
            return picture.resize((4, 4)), label // 2

    class Grey(Subset):
        def __getitem__(self, index):
            picture, label = super().__getitem__(index)
            return picture.convert("L").resize((4, 4)), label

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    folder = photos(tmp_path / "photos")
    coarse = Coarse(folder)
    assert from_torch(coarse, coarse, class_names=["insect", "pet"]).train_targets.tolist() == [0] * 12 + [1] * 12
    grey = Grey(ImageFolder(folder), range(24))
    assert from_torch(grey, grey).shape == (1, 4, 4)


def test_classes_of_the_same_name_stay_two(tmp_path):
    """As the crane that is a bird and the crane that is a machine."""
    folder = ImageFolder(photos(tmp_path / "photos"))
    dataset = from_torch(folder, folder, class_names=["crane", "bee", "crane", "dog"], image_size=8, workers=0)
    assert dataset.train_targets.bincount().tolist() == [6] * 4


def test_pictures_of_sixteen_bits_are_scaled():
    picture = Image.fromarray(np.array([[0, 257 * 7], [257 * 200, 65535]], np.uint16))
    dataset = from_torch([(picture, 0)] * 2, [(picture, 0)] * 2)
    assert dataset.train_images[0].flatten().tolist() == [0, 7, 200, 255]


def test_labels_of_an_image_folder_beyond_its_names(tmp_path):
    folder = ImageFolder(photos(tmp_path / "photos"))
    with pytest.raises(DataError, match=r"the label of .*cat/0.png is 2, but there are 2 classes"):
        from_torch(folder, folder, class_names=["ant", "bee"])


@pytest.mark.parametrize("stays", [False, True])
def test_it_is_learned(stays, tmp_path):
    data = ImageFolder(photos(tmp_path / "photos")) if stays else listed(Image.fromarray)
    dataset = from_torch(data, data, image_size=8)
    learner = Learner(PODNet(epochs=1, finetune_epochs=1, batch_size=8), 3, dataset.transform, ExemplarMemory(2))
    for task in class_incremental(dataset, range(4), base=2, increment=1):
        for _ in learner.learn(task):
            pass
    assert learner.predict(dataset.test_images).cnn.shape == (24, 4)
    assert len(learner.memory) == 8
