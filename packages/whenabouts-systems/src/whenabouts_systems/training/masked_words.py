"""Fine-tunes a text encoder on sentences by masked language modeling (Devlin et al. 2019, section 3.1).

Paper 000 (appendix A) fine-tunes RoBERTa on each data set and states no settings. Ours are those of RoBERTa's
own fine-tuning (Liu et al. 2019, table 10): AdamW, batches of 32, 10 epochs, weight decay 0.1 (of matrices
only); the rate rises over 6 % of the steps, then falls linearly to 0. Repeated sentences count once. One
sentence in 20 is held out and chooses the epoch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.encoders import EncoderSettings, on_torch, weight_files
from whenabouts.intake.files import folder_aside
from whenabouts.types import UsageError, number_of

if TYPE_CHECKING:
    from torch import Generator, Tensor

NOT_PREDICTED = -100
"""The label of a token that is not predicted; PyTorch's cross-entropy ignores it."""
_PREDICTED, _MASKED, _RANDOM = 0.15, 0.8, 0.1
_WARMUP, _WEIGHT_DECAY = 0.06, 0.1
_HELD_OUT = 0.05
_LEAST_EVALUATED = 512  # few held-out sentences are masked several times, for a steadier loss
_MOST_TOKENS = 128
_EXTRA = "sentence-transformers"  # reads the folder that is written


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
) -> list[float]:
    """Write the best epoch of an encoder (folder or hub name) as a new folder; return the held-out losses.

    The first loss is that before training. `report` gets lines on the progress. Raises UsageError for a
    folder that exists, fewer than two sentences, words unknown to the tokenizer, a model that predicts no
    masked words, and a loss that is not finite; EncoderUnavailable for a missing model or package.
    """
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path}: is there already; nothing is overwritten, give another name or remove it")
    training, held_out = divided(sentences)
    model, tokenizer = _opened(encoder)
    import torch
    from safetensors import SafetensorError

    model.to(device := on_torch.choose_device(EncoderSettings()))
    own_draws = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with own_draws, on_torch.quiet_transformers(), folder_aside(path) as folder:
        torch.manual_seed(seed)  # for dropout
        draws = torch.Generator().manual_seed(seed)
        optimizer, schedule = _optimizer(model, rate, epochs * math.ceil(len(training) / batch))
        losses = [_evaluated(model, tokenizer, held_out, batch)]
        if not math.isfinite(losses[0]):
            fault = f"its tokenizer knows no word of {held_out[0][:80]!r}, or its weights are damaged"
            raise UsageError(f"{encoder}: {fault}; name a model of this language, or fetch it again")
        report(f"{len(training)} sentences, {len(held_out)} more held out: their loss is {losses[0]:.3f}")
        for epoch in range(1, epochs + 1):
            model.train()
            order = [training[place] for place in torch.randperm(len(training), generator=draws).tolist()]
            for total, predicted in _losses(model, tokenizer, order, batch, draws):
                optimizer.zero_grad()
                (total / max(1, predicted)).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
            losses.append(_evaluated(model, tokenizer, held_out, batch))
            report(f"epoch {epoch} of {epochs}: loss {losses[-1]:.3f}")
            if not math.isfinite(losses[-1]):
                raise UsageError(f"{encoder}: the loss is not finite; a rate below {rate:g} may help")
            if losses[-1] == min(losses[1:]):
                try:
                    model.save_pretrained(folder)
                except SafetensorError as error:  # a full disk; `folder_aside` names the folder
                    raise OSError(str(error)) from error
        tokenizer.save_pretrained(folder)
    best = min(losses[1:])
    gain = "" if best < losses[0] else f"; it did not improve on {encoder}, use that instead"
    report(f"{path}: epoch {losses.index(best, 1)}, loss {best:.3f}, before {losses[0]:.3f}{gain}")
    return losses


def divided(sentences: Sequence[str]) -> tuple[list[str], list[str]]:
    """The sentences to train on, and those held out by their hashes; the order of `sentences` is ignored."""
    spaced = sorted({" ".join(text.split()) for text in sentences} - {""})
    different = {text.casefold(): text for text in spaced}
    if len(different) < 2:
        raise UsageError(f"{number_of(len(different), 'different sentence')} to fine-tune on; two are needed")
    keys = sorted(different, key=lambda key: hashlib.sha256(key.encode()).digest())
    count = math.ceil(len(keys) * _HELD_OUT)
    return [different[key] for key in keys[count:]], [different[key] for key in keys[:count]]


def mask_words(tokens: Tensor, words: Tensor, mask: int, draws: Generator) -> tuple[Tensor, Tensor]:
    """(N, L) inputs and labels: 15 % of the tokens are predicted; of them 80 % are masked, 10 % random words.

    Only ids among `words` (no special tokens) are predicted, and only they replace others.
    """
    import torch

    predicted = (torch.rand(tokens.shape, generator=draws) < _PREDICTED) & torch.isin(tokens, words)
    share = torch.rand(tokens.shape, generator=draws)
    random = words[torch.randint(len(words), tokens.shape, generator=draws)]
    inputs = tokens.masked_fill(predicted & (share < _MASKED), mask)
    inputs = torch.where(predicted & (share >= 1 - _RANDOM), random, inputs)
    return inputs, tokens.masked_fill(~predicted, NOT_PREDICTED)


def _losses(
    model: Any, tokenizer: Any, sentences: Sequence[str], batch: int, draws: Generator
) -> Iterator[tuple[Tensor, int]]:
    """For each batch the summed cross-entropy of the predicted tokens, and their number."""
    import torch

    words = torch.tensor(sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids)))
    places = getattr(model.config, "max_position_embeddings", 512) - 2  # RoBERTa's begin at 2
    most = min(tokenizer.model_max_length, _MOST_TOKENS, places)
    for begin in range(0, len(sentences), batch):
        texts = on_torch.tokenized(tokenizer, list(sentences[begin : begin + batch]), "longest", most)
        tokens, labels = mask_words(texts["input_ids"], words, tokenizer.mask_token_id, draws)
        inputs = on_torch.moved({**texts, "input_ids": tokens}, model.device, model.dtype)
        logits, labels = model(**inputs).logits.flatten(0, 1), labels.flatten().to(model.device)
        total = torch.nn.functional.cross_entropy(logits, labels, ignore_index=NOT_PREDICTED, reduction="sum")
        yield total, int((labels != NOT_PREDICTED).sum())


def _evaluated(model: Any, tokenizer: Any, sentences: Sequence[str], batch: int) -> float:
    """The mean cross-entropy of the predicted tokens, NaN without any. Each call predicts the same tokens."""
    import torch

    texts = [*sentences] * math.ceil(_LEAST_EVALUATED / len(sentences))
    model.eval()
    with torch.inference_mode():
        parts = [(float(total), n) for total, n in _losses(model, tokenizer, texts, batch, torch.Generator())]
    count = sum(n for _, n in parts)
    return sum(total for total, _ in parts) / count if count else math.nan


def _optimizer(model: Any, rate: float, steps: int) -> tuple[Any, Any]:
    import torch
    from transformers import get_linear_schedule_with_warmup

    weights = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [{"params": weights, "weight_decay": _WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate)
    return optimizer, get_linear_schedule_with_warmup(optimizer, math.ceil(_WARMUP * steps), steps)


def _opened(name: str) -> tuple[Any, Any]:
    """A masked language model, whose weights are all there, and its tokenizer."""
    weight_files.require(name, ("torch", "transformers"), _EXTRA)
    place = weight_files.locate(name)
    with weight_files.loading(name, _EXTRA), on_torch.quiet_transformers():
        from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoConfig, AutoModelForMaskedLM, AutoTokenizer

        if type(weight_files.pretrained(AutoConfig, place)) in MODEL_FOR_MASKED_LM_MAPPING:
            tokenizer = weight_files.pretrained(AutoTokenizer, place)
            model, missing = weight_files.opened_model(AutoModelForMaskedLM, place, "float32")
            marks = (tokenizer.mask_token_id, tokenizer.pad_token_id)
            if not missing and None not in marks and len(tokenizer) <= model.config.vocab_size:
                return model, tokenizer
    raise UsageError(
        f"{name}: predicts no masked words (its head's weights, the mask token, the padding token or the "
        "vectors of some words are missing); name a model with its masked language head, such as "
        "FacebookAI/roberta-base"
    )
