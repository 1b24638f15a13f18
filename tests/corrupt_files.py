"""Every hostile file of the suite: one builder per lie, from the modules that hold them by format."""

from corrupt_config import CONFIG_LIES
from corrupt_gguf import GGUF_LIES
from corrupt_hf import SAFETENSORS_LIES, SHARD_LIES
from corrupt_split import SPLIT_LIES

LIES = {
    f"{kind}: {lie.name}": lie
    for kind, lies in (
        ("gguf", GGUF_LIES),
        ("split", SPLIT_LIES),
        ("safetensors", SAFETENSORS_LIES),
        ("shards", SHARD_LIES),
        ("config", CONFIG_LIES),
    )
    for lie in lies
}
