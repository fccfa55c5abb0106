"""Names of published weights: short names of hub repositories, and a repository to start from for each family."""

from pathlib import Path

from saccade.errors import UsageError
from saccade.models.io import hub
from saccade.models.registry import FAMILIES
from saccade.suggest import suggest

SHORT_NAMES = {  # accepted wherever a model is named
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "mpnet": "sentence-transformers/all-mpnet-base-v2",
    "smollm2": "HuggingFaceTB/SmolLM2-135M",
}
PUBLISHED_WEIGHTS = {  # family -> a repository with its weights on the hub, and their size in megabytes
    "bert": ("google-bert/bert-base-uncased", 440),
    "roberta": ("FacebookAI/roberta-base", 499),
    "xlm_roberta": ("FacebookAI/xlm-roberta-base", 1_120),
    "camembert": ("almanach/camembert-base", 445),
    "distilbert": ("distilbert/distilbert-base-uncased", 268),
    "electra": ("google/electra-small-discriminator", 54),
    "longformer": ("allenai/longformer-base-4096", 597),
    "bigbird": ("google/bigbird-roberta-base", 513),
    "gpt2": ("openai-community/gpt2", 548),
    "llama": ("HuggingFaceTB/SmolLM2-135M", 269),
    "mistral": ("mistralai/Mistral-7B-v0.1", 14_500),
    "qwen2": ("Qwen/Qwen2-0.5B", 988),
    "qwen3": ("Qwen/Qwen3-0.6B", 1_500),
    "gpt_neox": ("EleutherAI/pythia-70m", 166),
    "gemma3": ("google/gemma-3-270m", 536),
    "t5": ("google-t5/t5-small", 242),
    "bart": ("facebook/bart-base", 558),
    "marian": ("Helsinki-NLP/opus-mt-en-de", 298),
    "vit": ("google/vit-base-patch16-224-in21k", 346),
}


def resolve_model_name(name: str) -> str:
    """The path or hub name of a model; raises UsageError for the name of a family, which has no weights of its own.

    >>> resolve_model_name("minilm")
    'sentence-transformers/all-MiniLM-L6-v2'
    """
    if Path(name).exists():
        return name
    if name in SHORT_NAMES:
        return SHORT_NAMES[name]
    if any(name in (family.name, *family.short_names) for family in FAMILIES):
        raise UsageError(describe_family_name(name))
    return name


def describe_family_name(name: str) -> str:
    """What to do with the name of a family where weights are needed."""
    new = f"{name} is a model family, not a model with weights. For a new, untrained model use --family {name}"
    if name not in PUBLISHED_WEIGHTS:
        return f"{new}; for trained weights name a run or a model directory."
    repository, megabytes = PUBLISHED_WEIGHTS[name]
    place = "" if hub.is_cached(repository) else ", not on this machine"
    return f"{new}; published weights are {repository} ({megabytes:,} MB{place})."


def suggest_family(name: str) -> str:
    """A hint for a model that was not found, if the name resembles that of a family."""
    names = [name for family in FAMILIES for name in (family.name, *family.short_names)]
    hint = suggest(name, names)
    return f" For a new, untrained model use --family: {hint}" if hint.startswith("did you mean") else ""
