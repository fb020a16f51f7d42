"""Embeds texts with all-MiniLM-L6-v2 in ONNX Runtime, in single precision: the floor of the built-in model's rows.

Arguments: the folder with the model, and the number of rounds. Reads a list of texts as JSON on standard input. Prints the
least seconds with a thread per core, the least processor time with one thread, and the vectors. Texts of about the same
length make a batch, as sentence-transformers has it; of several sizes of batches the fastest counts.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy
import onnxruntime
from tokenizers import Tokenizer

BATCHES = [1, 4, 16]


class Model:
    def __init__(self, folder, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        model = folder / "all-minilm-l6-v2.onnx"
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(folder / "all-minilm-l6-v2-tokenizer.json"))
        self.tokenizer.enable_truncation(256)
        self.tokenizer.enable_padding()

    def embed(self, texts, size):
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors = [None] * len(texts)
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            for at, vector in zip(batch, self.vectors([texts[at] for at in batch])):
                vectors[at] = vector
        return vectors

    def vectors(self, texts):
        pieces = self.tokenizer.encode_batch(texts)
        ids = numpy.array([text.ids for text in pieces], dtype=numpy.int64)
        mask = numpy.array([text.attention_mask for text in pieces], dtype=numpy.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        rows = self.session.run(None, inputs)[0]
        sums = (rows * mask[:, :, None].astype(numpy.float32)).sum(axis=1)
        return sums / numpy.linalg.norm(sums, axis=1, keepdims=True)


def least(clock, rounds, model, texts):
    model.embed(texts[:1], 1)
    times = []
    for _ in range(rounds):
        for size in BATCHES:
            begun = clock()
            vectors = model.embed(texts, size)
            times.append(clock() - begun)
    return min(times), vectors


def main():
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    texts = json.load(sys.stdin)
    processor, vectors = least(time.process_time, rounds, Model(folder, 1), texts)
    seconds, _ = least(time.perf_counter, rounds, Model(folder, len(os.sched_getaffinity(0))), texts)
    json.dump({"seconds": seconds, "processor": processor, "vectors": [vector.tolist() for vector in vectors]}, sys.stdout)


if __name__ == "__main__":
    main()
