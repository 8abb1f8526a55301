#!/usr/bin/env python3
"""Writes a synthetic Hugging Face checkpoint of random bf16 bytes, about 2 GiB by default.

Usage: bench/make_checkpoint.py FOLDER [KEY=VALUE ...]    keys: d_model layers heads kv_heads ffn vocab
"""
import json
import os
import random
import sys
from pathlib import Path

SHAPE = {"d_model": 2048, "layers": 21, "heads": 32, "kv_heads": 8, "ffn": 5632, "vocab": 32000}
CHUNK = 1 << 24


def tensors(g):
    d, kv = g["d_model"], g["d_model"] // g["heads"] * g["kv_heads"]
    yield "model.embed_tokens.weight", [g["vocab"], d]
    for layer in range(g["layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "self_attn.q_proj.weight", [d, d]
        yield prefix + "self_attn.k_proj.weight", [kv, d]
        yield prefix + "self_attn.v_proj.weight", [kv, d]
        yield prefix + "self_attn.o_proj.weight", [d, d]
        yield prefix + "mlp.gate_proj.weight", [g["ffn"], d]
        yield prefix + "mlp.up_proj.weight", [g["ffn"], d]
        yield prefix + "mlp.down_proj.weight", [d, g["ffn"]]
        yield prefix + "input_layernorm.weight", [d]
        yield prefix + "post_attention_layernorm.weight", [d]
    yield "model.norm.weight", [d]
    yield "lm_head.weight", [g["vocab"], d]


def header(g):
    entries, end = {}, 0
    for name, shape in tensors(g):
        begin, size = end, 2
        for extent in shape:
            size *= extent
        end = begin + size
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(entries).encode()
    return text + b" " * (-len(text) % 8), end


def config(g):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": g["d_model"],
            "num_hidden_layers": g["layers"], "num_attention_heads": g["heads"],
            "num_key_value_heads": g["kv_heads"], "intermediate_size": g["ffn"], "vocab_size": g["vocab"],
            "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


def main(folder, *settings):
    g = dict(SHAPE)
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in g:
            sys.exit(f"unknown key {key}; allowed: {' '.join(g)}")
        g[key] = int(value)
    Path(folder).mkdir(parents=True)
    Path(folder, "config.json").write_text(json.dumps(config(g), indent=2) + "\n")
    text, size = header(g)
    random_bytes = random.Random(0).randbytes
    with open(Path(folder, "model.safetensors"), "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for begin in range(0, size, CHUNK):
            out.write(random_bytes(min(CHUNK, size - begin)))
        out.flush()
        os.fsync(out.fileno())
    print(f"{folder}: {size} bytes of tensors")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
