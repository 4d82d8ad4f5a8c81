"""A real vision-language model of tiny size with random weights, saved as its publishers save one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def vision_language_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes folders with a LLaVA of two narrow layers a side, its tokenizer of bytes and its processor."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("PIL")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    def make(seed: int = 5, template: str | None = TEMPLATE) -> Path:
        folder = tmp_path_factory.mktemp("llava")
        special = ["<pad>", "<end>", "<image>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {token: place for place, token in enumerate([*special, *letters])}
        words = Tokenizer(models.BPE(vocabulary, []))
        words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        words.decoder = decoders.ByteLevel()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=words,
            pad_token="<pad>",
            eos_token="<end>",
            additional_special_tokens=special[2:],
            extra_special_tokens={"image_token": "<image>"},
        )
        small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        torch.manual_seed(seed)
        config = transformers.LlavaConfig(
            vision_config=transformers.CLIPVisionConfig(image_size=32, patch_size=16, **small),
            text_config=transformers.LlamaConfig(
                vocab_size=len(vocabulary), max_position_embeddings=8192, initializer_range=0.5,
                bos_token_id=None, eos_token_id=1, pad_token_id=0, **small,
            ),
            image_token_index=2,
            vision_feature_layer=-1,
            image_seq_length=4,
        )  # fmt: skip
        transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)
        pictures = transformers.CLIPImageProcessorPil(
            size={"height": 32, "width": 32}, crop_size={"height": 32, "width": 32}
        )
        processor = transformers.LlavaProcessor(
            pictures,
            tokenizer,
            patch_size=16,
            vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
            chat_template=template,
        )
        processor.save_pretrained(folder)
        return folder

    return make


def small_bert(folder: Path, kind: str, *, labels: int = 1, seed: int = 3) -> None:
    """Save a narrow BERT of a class of `transformers`, with a tokenizer over letters."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = [chr(code) for code in range(33, 127)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    words = Tokenizer(models.WordPiece({token: at for at, token in enumerate(tokens)}, unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer()
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    named = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=200, **named
    ).save_pretrained(folder)
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(tokens), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=256, num_labels=labels, initializer_range=0.5,
    )  # fmt: skip
    getattr(transformers, kind)(config).save_pretrained(folder)


@pytest.fixture(scope="session")
def cross_encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes folders with a cross-encoder of narrow layers and random weights."""
    pytest.importorskip("sentence_transformers")

    def make(labels: int = 1, seed: int = 3) -> Path:
        folder = tmp_path_factory.mktemp("cross")
        small_bert(folder, "BertForSequenceClassification", labels=labels, seed=seed)
        return folder

    return make


@pytest.fixture(scope="session")
def multi_vector_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A multi-vector model of narrow layers and random weights, as sentence-transformers saves one."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import MultiVectorEncoder

    folder = tmp_path_factory.mktemp("late")
    small_bert(folder / "bert", "BertModel")
    MultiVectorEncoder(str(folder / "bert"), device="cpu").save(str(folder / "saved"))
    return folder / "saved"


@pytest.fixture(scope="session")
def seeing_reranker_folders(
    tmp_path_factory: pytest.TempPathFactory, vision_language_folder: Callable[..., Path]
) -> dict[str, Path]:
    """A LLaVA of narrow layers as a cross-encoder, and as a multi-vector model."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import CrossEncoder, MultiVectorEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    model, folder = vision_language_folder(), tmp_path_factory.mktemp("seeing")
    modules = [Transformer(str(model), transformer_task="any-to-any"), LogitScore(20, 30)]
    CrossEncoder(modules=modules, device="cpu").save(str(folder / "cross"))
    MultiVectorEncoder(str(model), device="cpu").save(str(folder / "late"))
    return {name: folder / name for name in ("cross", "late")}
