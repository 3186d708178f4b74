"""A model card: what a model is, in Markdown with the fields that Hugging Face reads."""

from __future__ import annotations

import json

from podnet.errors import counted
from podnet.model.measure import accuracy_words, best_inference
from podnet.model.model import ClassRecord, Model

CARD = """\
---
library_name: podnet
pipeline_tag: image-classification
tags:
- image-classification
- class-incremental-learning
{index}---

# {title}

An image classifier for {count}, made with podnet. Network: `{chosen.backbone}`, weights `{chosen.weights}`, images of
{chosen.image_size} pixels; {way}.

## Accuracy

{measured}

| class | learned | photos | accuracy |
|---|---|---|---|
{classes}

## Use

`podnet predict MODEL photo.jpg`. The answer for photos unlike all classes is `unknown`. About 5 % of the photos of
known classes are called unknown, too.

## What the file contains

Weights, class names, the history of its lessons ({lessons}), and {kept}. Loading it executes no code.
"""
INDEX = """\
model-index:
- name: {name}
  results:
  - task: {{type: image-classification}}
    dataset: {{type: own-photos, name: photos of the owner}}
    metrics: [{{type: accuracy, value: {accuracy:.2f}, name: accuracy in percent}}]
"""
SAME_COLLECTION = (
    "They come from the same collection as the training photos; accuracy on other kinds of photos may be lower."
)


def card(model: Model, title: str) -> str:
    entry, settings = model.history[-1], model.settings
    words, best = accuracy_words(entry, settings.trained, settings.keep), best_inference(entry)
    accuracy, per_class = entry["accuracy"].get(best), entry["per_class"].get(best, {})
    return CARD.format(
        index="" if accuracy is None else INDEX.format(name=json.dumps(title), accuracy=accuracy),
        title=title,
        count=counted(len(model.classes), "class"),
        chosen=settings,
        way="trained by PODNet" if settings.trained else "not trained, with ridge regression on its features",
        measured=words[0].upper() + words[1:] + ("." if accuracy is None else f".\n{SAME_COLLECTION}"),
        classes="\n".join(_row(record, per_class.get(record.name)) for record in model.classes),
        lessons=len(model.history),
        kept=model.kept_words(),
    )


def _row(record: ClassRecord, share: float | None) -> str:
    name, accuracy = record.name.replace("|", "\\|"), "–" if share is None else f"{share:.1f}"
    return f"| {name} | {record.learned} | {record.photos} | {accuracy} |"
