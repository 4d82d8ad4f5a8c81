"""Fine-tune a text encoder on sentences by masked language modeling (Devlin et al., NAACL 2019, section 3.1).

Paper 000 (appendix A) fine-tunes RoBERTa so on each data set, and names no settings. Read here: RoBERTa's own
for fine-tuning (Liu et al. 2019, table 10), 10 epochs in batches of 32 by AdamW, weights (but no biases and
norms) decay by 0.1, the learning rate rises over 6 % of the steps and falls linearly to 0; each sentence
once, however many videos have it; one in 20 held out, to choose the epoch. Needs `transformers`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from whenabouts.encoders import EncoderSettings, on_torch, weight_files
from whenabouts.intake.files import folder_aside, write_atomically
from whenabouts.types import UsageError, number_of

if TYPE_CHECKING:
    import torch

IGNORED = -100
"""The label of a token that is not predicted, as PyTorch's cross-entropy has it."""
_CHOSEN, _MASKED, _RANDOM = 0.15, 0.8, 0.1
_HELD_OUT = 20
_WARMUP, _DECAY = 0.06, 0.1
_MOST_TOKENS = 128
_EXTRA = "sentence-transformers"  # its encoders read the folder that is written


@dataclass(frozen=True)
class FineTuned:
    """The encoder that was written: cross-entropy of masked words in held-out sentences, before and by epoch."""

    encoder: str
    sentences: int
    held_out: int
    seed: int
    before: float
    losses: tuple[float, ...]

    def lines(self) -> list[str]:
        best = min(self.losses)
        kept = f"kept epoch {self.losses.index(best) + 1} of {len(self.losses)}, loss {best:.3f}"
        if best < self.before:
            return [f"{kept}, before {self.before:.3f}"]
        return [
            f"{kept}: not below {self.before:.3f}, the loss before; on such sentences {self.encoder} is as good"
        ]


def fine_tune(
    encoder: str,
    sentences: Sequence[str],
    path: Path,
    *,
    epochs: int = 10,
    rate: float = 3e-5,
    batch: int = 32,
    seed: int = 0,
    report: Callable[[str], object] = lambda line: None,
) -> FineTuned:
    """Fine-tune a masked language model (folder or hub name) and write the best epoch into a new folder.

    `report` gets a line before the first epoch and after each. Raises UsageError for a folder that exists,
    fewer than two sentences, a model that predicts no masked words, or a loss that is not finite;
    EncoderUnavailable for a model or a package that is missing.
    """
    import torch

    if path.exists() or path.is_symlink():
        raise UsageError(f"{path}: is there already; nothing is overwritten, give another name or remove it")
    training, held_out = divided(sentences)
    device = on_torch.choose_device(EncoderSettings())
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        folder_aside(path) as folder,
    ):
        torch.manual_seed(seed)  # for dropout
        tuning = _Tuning(*_opened(encoder), batch, device)
        optimizer, schedule = tuning.optimizer(rate, epochs * math.ceil(len(training) / batch))
        draws, losses = torch.Generator().manual_seed(seed), list[float]()
        before = tuning.loss(held_out)
        report(
            f"{number_of(len(training), 'sentence')} to train on, {len(held_out)} held out: loss {before:.3f}"
        )
        for epoch in range(1, epochs + 1):
            order = torch.randperm(len(training), generator=draws).tolist()
            tuning.train([training[place] for place in order], draws, optimizer, schedule)
            losses.append(tuning.loss(held_out))
            report(f"epoch {epoch} of {epochs}: loss {losses[-1]:.3f}")
            if not math.isfinite(losses[-1]):
                raise UsageError(
                    f"{encoder}: the loss of epoch {epoch} is {losses[-1]}; a lower rate may help"
                )
            if losses[-1] == min(losses):
                tuning.model.save_pretrained(folder)
        tuning.tokenizer.save_pretrained(folder)
        done = FineTuned(encoder, len(training), len(held_out), seed, before, tuple(losses))
        with write_atomically(folder / "fine_tuned.json") as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(asdict(done))))
    return done


def divided(sentences: Sequence[str]) -> tuple[list[str], list[str]]:
    """Different sentences to train on, and those to hold out: hashes choose, whatever the order and the seed."""
    different = {" ".join(text.split()).casefold(): text for text in sentences if text.strip()}
    if len(different) < 2:
        raise UsageError(f"{number_of(len(different), 'sentence')} with words: at least two are needed")
    hashed = sorted(different, key=lambda text: hashlib.sha256(text.encode()).digest())
    ordered = [different[text] for text in hashed]
    count = math.ceil(len(ordered) / _HELD_OUT)
    return ordered[count:], ordered[:count]


def mask_words(
    tokens: torch.Tensor, words: torch.Tensor, mask: int, draws: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels for (N, L) tokens: 15 % are predicted, of them 80 % masked, 10 % at random, 10 % kept.

    Only ids in `words` are predicted, and only they replace others; special tokens are not among them.
    """
    import torch

    chosen = (torch.rand(tokens.shape, generator=draws) < _CHOSEN) & torch.isin(tokens, words)
    share = torch.rand(tokens.shape, generator=draws)
    others = words[torch.randint(len(words), tokens.shape, generator=draws)]
    inputs = torch.where(chosen & (share < _MASKED), mask, tokens)
    inputs = torch.where(chosen & (share >= 1 - _RANDOM), others, inputs)
    return inputs, tokens.masked_fill(~chosen, IGNORED)


@dataclass
class _Tuning:
    """A model with its tokenizer, and how its losses are computed."""

    model: Any
    tokenizer: Any
    batch: int
    device: torch.device

    def __post_init__(self) -> None:
        import torch

        special = set(self.tokenizer.all_special_ids)
        self._words = torch.tensor([word for word in range(len(self.tokenizer)) if word not in special])
        places = getattr(self.model.config, "max_position_embeddings", _MOST_TOKENS + 2)
        # RoBERTa's first two positions are for padding.
        self._most = min(_MOST_TOKENS, self.tokenizer.model_max_length, places - 2)
        self.model.to(self.device)

    def optimizer(self, rate: float, steps: int) -> tuple[Any, Any]:
        """AdamW, and the schedule of its learning rate."""
        import torch
        from transformers import get_linear_schedule_with_warmup

        weights = list(self.model.parameters())
        groups = [
            {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": _DECAY},
            {"params": [weight for weight in weights if weight.ndim <= 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=rate)
        return optimizer, get_linear_schedule_with_warmup(optimizer, math.ceil(_WARMUP * steps), steps)

    def train(self, sentences: Sequence[str], draws: torch.Generator, optimizer: Any, schedule: Any) -> None:
        """One epoch: a step for each batch."""
        self.model.train()
        for total, count in self._losses(sentences, draws):
            optimizer.zero_grad()
            (total / max(1, count)).backward()
            optimizer.step()
            schedule.step()

    def loss(self, sentences: Sequence[str]) -> float:
        """The mean cross-entropy of masked words; the same words at each call."""
        import torch

        self.model.eval()
        with torch.inference_mode():
            losses = [(float(total), count) for total, count in self._losses(sentences, torch.Generator())]
        return sum(total for total, _ in losses) / max(1, sum(count for _, count in losses))

    def _losses(self, sentences: Sequence[str], draws: torch.Generator) -> Iterator[tuple[torch.Tensor, int]]:
        """For each batch the sum of the cross-entropy of its masked words, and their number."""
        import torch

        for begin in range(0, len(sentences), self.batch):
            texts = list(sentences[begin : begin + self.batch])
            batch = on_torch.tokenized(self.tokenizer, texts, "longest", self._most)
            inputs, labels = mask_words(batch["input_ids"], self._words, self.tokenizer.mask_token_id, draws)
            batch = on_torch.moved({**batch, "input_ids": inputs}, self.device, torch.float32)
            logits, labels = self.model(**batch).logits.flatten(0, 1), labels.flatten().to(self.device)
            total = torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
            yield total, int((labels != IGNORED).sum())


def _opened(name: str) -> tuple[Any, Any]:
    """A masked language model and its tokenizer."""
    weight_files.require(name, ("transformers",), _EXTRA)
    place = weight_files.locate(name)
    with weight_files.loading(name, _EXTRA), on_torch.quiet_transformers():
        import torch
        from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoConfig, AutoModelForMaskedLM, AutoTokenizer

        lacks = type(weight_files.pretrained(AutoConfig, place)) not in MODEL_FOR_MASKED_LM_MAPPING
        tokenizer = None if lacks else weight_files.pretrained(AutoTokenizer, place)
        if tokenizer is not None and tokenizer.mask_token_id is not None:
            model, missing = weight_files.opened_model(AutoModelForMaskedLM, place, torch.float32)
            if not missing:
                return model, tokenizer
    raise UsageError(
        f"{name}: does not predict masked words (no such head, weights or mask token); name a model as it was "
        "pre-trained, such as FacebookAI/roberta-base"
    )
