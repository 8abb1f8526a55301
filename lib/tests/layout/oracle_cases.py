#!/usr/bin/env python3
"""Random geometries and what the index maps of an independent oracle say about them, as JSON.

usage: oracle_cases.py ORACLE.py CASES_PER_FORMULA

{FORMULA: [{"args": {NAME: NUMBER}, "want": LIST PER RANK, or one list for a whole tensor}]}. An index of -1 is
padding. The numbers depend on the formula and the case alone.
"""
import importlib.util
import json
import random
import sys


def divisor(rng, *numbers):
    """A degree that divides every number."""
    return rng.choice([t for t in range(1, 9) if all(n % t == 0 for n in numbers)])


def per_rank(t, held):
    return [held(r) for r in range(t)]


def heads(rng, equal=False):
    nkv = rng.randint(1, 4)
    return {"nh": nkv * (1 if equal else rng.randint(1, 4)), "nkv": nkv, "hd": rng.choice([2, 4, 6])}


def formulas(o):
    """Name -> function of a random generator that returns arguments and the oracle's answer."""
    table = {}

    def formula(make):
        table[make.__name__] = make
        return make

    def shard(name, even):
        def make(rng):
            t, n = rng.randint(1, 8), rng.randint(0, 40)
            if even:
                n *= t
            return {"n": n, "t": t}, per_rank(t, lambda r: getattr(o, name)(n, t, r))
        table[name] = make

    shard("shard_even", True)
    shard("shard_torch_chunk", False)
    shard("shard_array_split", False)
    shard("shard_hf_floor", False)

    @formula
    def segments(rng):
        t = rng.randint(1, 6)
        sizes = [t * rng.randint(1, 6) for _ in range(rng.randint(1, 5))]
        return {"sizes": sizes, "t": t}, per_rank(t, lambda r: o.segments(sizes, t, r))

    @formula
    def strided(rng):
        n, t, sf = rng.randint(0, 40), rng.randint(1, 6), rng.randint(1, 5)
        return {"n": n, "t": t, "sf": sf}, per_rank(t, lambda r: o.strided(n, t, r, sf))

    @formula
    def strided_mcore(rng):
        t, sf = rng.randint(1, 6), rng.randint(1, 5)
        n = t * sf * rng.randint(1, 4)
        return {"n": n, "t": t, "sf": sf}, per_rank(t, lambda r: o.strided_mcore(n, t, r, sf))

    @formula
    def head_partitioned(rng):
        a = heads(rng)
        t = divisor(rng, a["nh"], a["nkv"])
        return {**a, "t": t}, per_rank(t, lambda r: o.head_partitioned(a["nh"], a["nkv"], a["hd"], t, r))

    @formula
    def vllm_qkv(rng):
        a = heads(rng)
        t = rng.choice([t for t in range(1, 17)
                        if a["nh"] % t == 0 and (t % a["nkv"] == 0 if t >= a["nkv"] else a["nkv"] % t == 0)])
        vhd = rng.choice([a["hd"], a["hd"] // 2])
        return ({**a, "vhd": vhd, "t": t},
                per_rank(t, lambda r: o.vllm_qkv(a["nh"], a["nkv"], a["hd"], t, r, vhd)))

    @formula
    def mcore_qkv_to_flat(rng):
        a, gated = heads(rng), rng.random() < 0.5
        return {**a, "gated": gated}, o.mcore_qkv_to_flat(a["nh"], a["nkv"], a["hd"], gated)

    @formula
    def mcore_qkv_rank(rng):
        a, gated = heads(rng), rng.random() < 0.5
        t = divisor(rng, ((2 if gated else 1) * a["nh"] + 2 * a["nkv"]) * a["hd"])  # also through groups
        return ({**a, "gated": gated, "t": t},
                per_rank(t, lambda r: o.mcore_qkv_rank(a["nh"], a["nkv"], a["hd"], t, r, gated)))

    @formula
    def neox_to_flat(rng):
        a = heads(rng, equal=True)
        return a, o.neox_to_flat(a["nh"], a["hd"])

    @formula
    def falcon_new_to_flat(rng):
        a = heads(rng)
        return a, o.falcon_new_to_flat(a["nh"], a["nkv"], a["hd"])

    @formula
    def gpt2_cols(rng):
        a = heads(rng, equal=True)
        t = divisor(rng, a["nh"])
        return {**a, "t": t}, per_rank(t, lambda r: o.gpt2_cols(a["nh"] * a["hd"], a["nh"], t, r))

    @formula
    def mla_kv_b(rng):
        nh, nope, v = rng.randint(1, 8), rng.randint(1, 4), rng.randint(1, 4)
        t = divisor(rng, nh)
        return ({"nh": nh, "nope": nope, "v": v, "t": t}, per_rank(t, lambda r: o.mla_kv_b(nh, nope, v, t, r)))

    @formula
    def fused_paired(rng):
        t = rng.randint(1, 6)
        rows = t * rng.randint(1, 8)
        first, second = rng.choice([(0, rows), (rows, 0)])
        return ({"first": first, "second": second, "rows": rows, "t": t},
                per_rank(t, lambda r: o.fused_paired((first, first + rows), (second, second + rows), t, r)))

    @formula
    def gptoss_interleave_to_stacked(rng):
        i = rng.randint(1, 30)
        return {"i": i}, o.gptoss_interleave_to_stacked(i)

    @formula
    def gptoss_gate_up_rank(rng):
        i = rng.randint(1, 30)
        t, stacked = divisor(rng, i), o.gptoss_interleave_to_stacked(i)
        return ({"i": i, "t": t}, per_rank(t, lambda r: [stacked[c] for c in o.gptoss_gate_up_rank(i, t, r)]))

    @formula
    def glu_block_interleave_to_stacked(rng):
        s, blocks = rng.randint(1, 8), rng.randint(1, 5)
        return {"i": s * blocks, "s": s}, o.glu_block_interleave_to_stacked(s * blocks, s)

    @formula
    def mcore_padded_vocab(rng):
        v, t, div = rng.randint(1, 300), rng.randint(1, 8), rng.choice([1, 4, 16, 128])
        return {"v": v, "t": t, "div": div}, o.mcore_padded_vocab(v, t, div)

    @formula
    def mcore_vocab(rng):
        v, t, div = rng.randint(1, 60), rng.randint(1, 4), rng.choice([1, 4, 16])
        return {"v": v, "t": t, "div": div}, per_rank(t, lambda r: o.mcore_vocab(v, t, r, div))

    @formula
    def vllm_vocab(rng):
        pad = rng.choice([4, 8, 64])
        org, added = rng.randint(1, 2 * pad), rng.randint(0, pad + 3)
        t = divisor(rng, -(-org // pad) * pad, -(-(-(-org // pad) * pad + added) // pad) * pad)
        return ({"org": org, "added": added, "pad": pad, "t": t},
                per_rank(t, lambda r: o.vllm_vocab(org, added, t, r, pad)))

    @formula
    def mamba2_in_proj(rng):
        t = rng.randint(1, 4)
        di, ng, ds, nh = t * rng.randint(1, 4), t * rng.randint(1, 2), rng.randint(1, 4), t * rng.randint(1, 3)
        return ({"sizes": [di, di, ng * ds, ng * ds, nh], "t": t},
                per_rank(t, lambda r: o.mamba2_in_proj(di, ng, ds, nh, t, r)))

    @formula
    def mamba2_conv(rng):
        t = rng.randint(1, 4)
        di, ng, ds = t * rng.randint(1, 4), t * rng.randint(1, 2), rng.randint(1, 4)
        return ({"sizes": [di, ng * ds, ng * ds], "t": t}, per_rank(t, lambda r: o.mamba2_conv(di, ng, ds, t, r)))

    @formula
    def gdn_in_proj(rng):
        t = rng.randint(1, 4)
        nk, hk, hv = t * rng.randint(1, 2), rng.randint(1, 4), rng.randint(1, 4)
        nv = nk * rng.randint(1, 2)
        return ({"sizes": [nk * hk, nk * hk, nv * hv, nv * hv, nv, nv], "t": t},
                per_rank(t, lambda r: o.gdn_in_proj(nk, nv, hk, hv, t, r)))

    @formula
    def qwen3next_qkvz_to_flat(rng):
        nk, hk, hv = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 4)
        nv = nk * rng.randint(1, 3)
        return {"nk": nk, "nv": nv, "hk": hk, "hv": hv}, o.qwen3next_qkvz_to_flat(nk, nv, hk, hv)

    @formula
    def qwen3next_ba_to_flat(rng):
        nk = rng.randint(1, 6)
        nv = nk * rng.randint(1, 4)
        return {"nk": nk, "nv": nv}, o.qwen3next_ba_to_flat(nk, nv)

    def rotary(name):
        def make(rng):
            nh, hd = rng.randint(1, 6), 2 * rng.randint(1, 6)
            return {"nh": nh, "hd": hd}, getattr(o, name)(nh, hd)
        table[name] = make

    rotary("rope_interleaved_to_half")
    rotary("rope_half_to_interleaved")

    @formula
    def mcore_expert(rng):
        ep = rng.randint(1, 6)
        e = ep * rng.randint(1, 6)
        return {"e": e, "ep": ep}, per_rank(ep, lambda r: o.mcore_expert(e, ep, r))

    @formula
    def pp_offset(rng):
        pp, each = rng.randint(2, 6), rng.randint(1, 4)
        first, last = rng.choice([0, rng.randint(1, 4)]), rng.choice([0, rng.randint(1, 4)])
        layers = first + last + each * (pp - (first > 0) - (last > 0))
        return ({"layers": layers, "pp": pp, "first": first, "last": last},
                [o.pp_offset(layers, pp, r, first=first or None, last=last or None) for r in range(pp)])

    @formula
    def lcm_plan(rng):
        ts, td, ss, ds = (rng.randint(1, 4) for _ in range(4))
        tiles = ts * ss * td * ds
        n = tiles // o.gcd(ts * ss, td * ds) * rng.randint(1, 3)
        rows = []
        for ops in o.lcm_plan(n, ts, td, ss, ds):  # per target row: source rank, source row
            rows.append([[rank, begin + i] for rank, begin, _, length in ops for i in range(length)])
        return {"n": n, "ts": ts, "td": td, "ss": ss, "ds": ds}, rows

    return table


def main():
    spec = importlib.util.spec_from_file_location("layout_oracle", sys.argv[1])
    oracle = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle)
    cases = {}
    for name, make in formulas(oracle).items():
        cases[name] = []
        for index in range(int(sys.argv[2])):
            args, want = make(random.Random(f"{name} {index}"))
            cases[name].append({"args": args, "want": want})
    print(json.dumps(cases, separators=(",", ":")).replace('],"', '],\n"'))


if __name__ == "__main__":
    main()
