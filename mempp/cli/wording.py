"""Errors of the library, which speak to its callers in Python, in the words of the command line."""

from mempp.errors import MemppError

_WORDS = (
    (
        "open it without encoder= to use its own, or change it with reembed()",
        "leave out --encoder to use its own, or change it with `mempp reembed`",
    ),
    (
        "this memory was opened with encoder='none'; open it with an encoder",
        "the store has no encoder; name one with --encoder",
    ),
    (
        "this memory was opened with encoder='none', and its store has no encoder yet",
        "the store has no encoder yet; name one with --encoder",
    ),
    (
        "the path of a directory with model.onnx and tokenizer.json, or an object with identity, encode_documents and "
        "encode_question",
        "or the path of a directory with model.onnx and tokenizer.json",
    ),
    ("pass that encoder object as encoder=", "open the store in Python with that encoder, mempp.open(…, encoder=…)"),
    (
        "pass encoder=DirectoryEncoder(path) with the place where the model lies, or put it back",
        "name the folder where the model lies with --encoder, or put it back",
    ),
    ("or pass encoder=DirectoryEncoder(path)", "or name the folder of the model with --encoder"),
    (", or pass encoder=OpenAIEncoder(…, base_url=…)", ""),
    ("set OPENAI_API_KEY or pass api_key=", "set OPENAI_API_KEY"),
    ("Open the store with read_only=True, or give this user the right to write.", "Give this user the right to write."),
    ("to ask without the vector leg, use settings=mempp.Settings(weight_vector=0)", "--encoder none asks without it"),
)


def in_words_of_the_command(error: MemppError) -> None:
    """Put options in the place of arguments, in the message of an error."""
    text = str(error)
    for python, command in _WORDS:
        text = text.replace(python, command)
    if text != str(error):
        error.args = (text, *error.args[1:])
