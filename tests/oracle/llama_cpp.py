"""llama.cpp, called through the C interface that xllamacpp's library exports. Structures that are passed by value are
larger than llama.cpp's own: a caller may pass and receive more than the callee knows."""
import ctypes
import glob
import importlib.metadata
import os

import numpy
import xllamacpp

VERSION = importlib.metadata.version("xllamacpp")
_lib = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(xllamacpp.__file__), "xllamacpp*.so"))[0])


class _ModelParams(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 512)]


class _ContextParams(ctypes.Structure):
    """The first fields of llama_context_params."""
    _fields_ = [(name, ctypes.c_uint32) for name in (
        "n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max", "n_outputs_max_per_seq")] + [
        (name, ctypes.c_int32) for name in (
            "n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type", "pooling_type", "attention_type",
            "flash_attn_type")] + [
        (name, ctypes.c_float) for name in (
            "rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast",
            "yarn_beta_slow")] + [
        ("yarn_orig_ctx", ctypes.c_uint32), ("defrag_thold", ctypes.c_float),
        ("cb_eval", ctypes.c_void_p), ("cb_eval_user_data", ctypes.c_void_p),
        ("type_k", ctypes.c_int32), ("type_v", ctypes.c_int32), ("rest", ctypes.c_char * 512)]


class _Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


def _function(name, result, *arguments):
    function = getattr(_lib, name)
    function.restype, function.argtypes = result, arguments
    return function


_log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_messages = []


@_log
def _collect(level, text, _):
    if level >= 3:  # warnings and errors
        _messages.append(text.decode("utf-8", "replace").rstrip())


_function("llama_log_set", None, _log, ctypes.c_void_p)(_collect, None)
_function("llama_backend_init", None)()
_model_defaults = _function("llama_model_default_params", _ModelParams)
_context_defaults = _function("llama_context_default_params", _ContextParams)
_load = _function("llama_model_load_from_file", ctypes.c_void_p, ctypes.c_char_p, _ModelParams)
_free_model = _function("llama_model_free", None, ctypes.c_void_p)
_vocab_of = _function("llama_model_get_vocab", ctypes.c_void_p, ctypes.c_void_p)
_vocab_size = _function("llama_vocab_n_tokens", ctypes.c_int32, ctypes.c_void_p)
_context = _function("llama_init_from_model", ctypes.c_void_p, ctypes.c_void_p, _ContextParams)
_free = _function("llama_free", None, ctypes.c_void_p)
_batch = _function("llama_batch_init", _Batch, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)
_free_batch = _function("llama_batch_free", None, _Batch)
_decode = _function("llama_decode", ctypes.c_int32, ctypes.c_void_p, _Batch)
_logits = _function("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_int32)
_tokenize = _function("llama_tokenize", ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32,
                      ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool)


class Model:
    """A GGUF file in llama.cpp. `messages`: its warnings while it was loaded."""

    def __init__(self, path):
        _messages.clear()
        self._model = _load(path.encode(), _model_defaults())
        self.messages = list(_messages)
        if not self._model:
            raise ValueError(f"{path}: llama.cpp cannot load it: " + " | ".join(self.messages))
        self._vocab = _vocab_of(self._model)
        self.vocab_size = _vocab_size(self._vocab)

    def close(self):
        _free_model(self._model)

    def tokenize(self, text, add_special=True, parse_special=True):
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 16))()
        count = _tokenize(self._vocab, data, len(data), ids, len(ids), add_special, parse_special)
        assert count >= 0
        return list(ids[:count])

    def logits(self, ids):
        """[position][token], of one text from its beginning, with a cache of keys and values in fp32."""
        params = _context_defaults()
        assert (params.n_ctx, params.type_k, params.type_v) == (512, 1, 1), "llama.cpp's structure is another one"
        params.n_ctx = params.n_batch = params.n_ubatch = max(len(ids), 64)
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = 0
        params.flash_attn_type = 0  # off: it rounds queries
        context = _context(self._model, params)
        assert context, "llama.cpp makes no context: " + " | ".join(_messages)
        batch = _batch(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for at, token in enumerate(ids):
            batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.logits[at] = token, at, 1, 1
            batch.seq_id[at][0] = 0
        code = _decode(context, batch)
        assert code == 0, f"llama_decode: {code}"
        rows = [numpy.ctypeslib.as_array(_logits(context, at), (self.vocab_size,)).copy() for at in range(len(ids))]
        _free_batch(batch)
        _free(context)
        return numpy.stack(rows)

    def greedy(self, ids, count):
        ids = list(ids)
        for _ in range(count):
            ids.append(int(self.logits(ids)[-1].argmax()))
        return ids
