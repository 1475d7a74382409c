"""What a user of each peer writes until the first answer, once a model is trained.

These are run as they are for the cold start, and their lines are counted.
"""

from __future__ import annotations

CAPSAR = """\
import capsar

for answer in capsar.load({model!r}).analyze(["Great food, terrible service."])[0]:
    print(answer.text, answer.start, answer.end, answer.polarity)
"""
SETFIT = """\
from setfit import AbsaModel

model = AbsaModel.from_pretrained({aspect!r}, {polarity!r}, spacy_model={spacy!r})
for answer in model.predict(["Great food, terrible service."])[0]:
    print(answer["span"], answer["polarity"])
"""
BERT = """\
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({model!r})
model = AutoModelForTokenClassification.from_pretrained({model!r}).eval()
inputs = tokenizer("Great food, terrible service.", "food", return_tensors="pt")
with torch.inference_mode():
    logits = model(**inputs).logits[0, 0]
print("food", model.config.id2label[logits.argmax().item()])
"""


def num_lines(program: str) -> int:
    """Count the lines that hold something."""
    return sum(bool(line.strip()) for line in program.splitlines())
