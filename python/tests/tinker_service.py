"""A Tinker service on this machine: what the client sends is parsed, checked and computed with a policy of a table of logits."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from tinker.proto import tinker_public_pb2 as wire

V = 6  # Tokens; 0 ends a response.
DTYPES = {wire.DTYPE_FLOAT32: np.float32, wire.DTYPE_INT64: np.int64}
# The inputs of each loss, which the service checks as Tinker's documentation has them.
INPUTS = {
    "cross_entropy": {"target_tokens", "weights"},
    "importance_sampling": {"target_tokens", "logprobs", "advantages"},
}


class Service:
    """The policy's logits for the next token are a row of `table`, that of the last token. Steps are SGD."""

    def __init__(self, seed=0):
        self.table = torch.randn(V, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()
        self.requests = []  # Of each forward-backward call: the loss, whether it is forward only, and the inputs of each datum.
        self.tables = []  # The table after each step.
        self.samplers, self.saved, self.answers = {}, {}, {}
        self.step, self.drawn = 0, {}
        self.lock = threading.RLock()

    def logits(self, tokens):
        return self.table[torch.as_tensor(tokens)].log_softmax(-1)

    def forward_backward(self, body):
        request = wire.ForwardBackwardRequest.FromString(body)
        total, outputs, seen = torch.zeros((), dtype=torch.float64), [], []
        for datum in request.data:
            tokens = [
                token for chunk in datum.model_input for token in np.frombuffer(chunk.encoded_text.tokens, np.int32).tolist()
            ]
            inputs = {name: np.frombuffer(one.dense, DTYPES[one.dtype]) for name, one in datum.loss_fn_inputs.items()}
            assert inputs.keys() == INPUTS[request.loss_fn], f"{request.loss_fn} got {sorted(inputs)}"
            assert all(len(values) == len(tokens) for values in inputs.values())
            values = {name: torch.tensor(values) for name, values in inputs.items()}
            logp = self.logits(tokens).gather(1, values["target_tokens"][:, None])[:, 0]
            if request.loss_fn == "cross_entropy":
                total = total - (logp * values["weights"]).sum()
            else:
                total = total - ((logp - values["logprobs"]).exp() * values["advantages"]).sum()
            outputs.append(logp.detach().numpy().astype(np.float32))
            seen.append({**inputs, "tokens": tokens})
        self.requests.append((request.loss_fn, request.forward_only, seen))
        if not request.forward_only:
            total.backward()
        answer = wire.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", metrics={"loss:sum": total.item()})
        record = answer.loss_fn_outputs.add(num_datums=len(outputs))
        field = record.fields["logprobs"]
        field.data, field.dtype = b"".join(one.tobytes() for one in outputs), wire.DTYPE_FLOAT32
        field.offsets = np.cumsum([0, *(one.nbytes for one in outputs)]).astype(np.int64).tobytes()
        return answer.SerializeToString()

    def optim_step(self, body):
        rate = (body.get("optim_params") or body["adam_params"])["learning_rate"]
        with torch.no_grad():
            self.table -= rate * self.table.grad
        self.table.grad = None
        self.tables.append(self.table.detach().clone())
        self.step += 1
        return {"type": "optim_step", "metrics": {}}

    def asample(self, body):
        table, step = self.samplers[body["sampling_session_id"]]
        prompt = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
        answer = wire.SampleResponse()
        for _ in range(body.get("num_samples", 1)):
            # The same draws at a step for the same prompt, whatever the order of the requests is.
            key = (step, *prompt)
            self.drawn[key] = self.drawn.get(key, 0) + 1
            draw = np.random.default_rng([self.drawn[key], *key])
            tokens, logps, last = [], [], prompt[-1]
            while len(tokens) < body["sampling_params"]["max_tokens"] and last != 0:
                logp = table[last].log_softmax(-1).numpy()
                last = int(draw.choice(V, p=np.exp(logp)))
                tokens.append(last)
                logps.append(logp[last])
            stop = wire.STOP_REASON_STOP if last == 0 else wire.STOP_REASON_LENGTH
            arrays = {"tokens": np.array(tokens, np.int32).tobytes(), "logprobs": np.array(logps, np.float32).tobytes()}
            answer.sequences.add(stop_reason=stop, **arrays)
        return answer.SerializeToString()

    def save(self, body):
        path = f"tinker://model/{body.get('path') or len(self.samplers)}"
        self.saved[path] = self.table.detach().clone(), self.step
        if body.get("path") is None:
            self.samplers[session := f"sampler{len(self.samplers)}"] = self.saved[path]
            return {"sampling_session_id": session}
        return {"path": path}

    def load(self, body):
        with torch.no_grad():
            self.table.copy_(self.saved[body["path"]][0])
        return {"model_id": "model", "path": body["path"], "type": "load_weights"}

    def sampling_session(self, body):
        self.samplers[session := f"sampler{len(self.samplers)}"] = self.saved[body["model_path"]]
        return {"sampling_session_id": session}

    def answer(self, path, body):
        """What the client gets at once, JSON or, for a future that is done, what it asked for."""
        later = {
            "forward_backward": self.forward_backward, "optim_step": self.optim_step, "asample": self.asample,
            "save_weights": self.save, "save_weights_for_sampler": self.save, "load_weights": self.load,
            "create_model": lambda _: {"model_id": "model", "type": "create_model"},
        }  # fmt: skip
        if path in later:
            with self.lock:
                self.answers[name := f"request{len(self.answers)}"] = later[path](body)
            count = body.get("num_samples", 1) if path == "asample" else 0
            ids = {"sample_sequence_ids": [f"{name}.{place}" for place in range(count)]} if count else {}
            return {"request_id": name, **ids}
        now = {
            "create_session": {"session_id": "session"},
            "get_info": {"model_id": "model", "model_data": {"model_name": "tiny", "tokenizer_id": "tiny"}, "is_lora": True},
            "telemetry": {"status": "accepted"},
        }
        if path == "retrieve_future":
            return self.answers[body["request_id"]]
        if path == "create_sampling_session":
            return self.sampling_session(body)
        if path == "client/config":
            # Plain HTTP of this machine.
            return {"use_pyqwest_transport": False}
        if path.startswith("samplers/"):
            return {"sampler_id": path.removeprefix("samplers/"), "base_model": "tiny"}
        return now.get(path, {})


@contextlib.contextmanager
def serving(service):
    """The address of the service, while it answers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            content = self.rfile.read(int(self.headers["Content-Length"] or 0))
            is_wire = "protobuf" in (self.headers["Content-Type"] or "")
            path = self.path.removeprefix("/api/v1/")
            try:
                found, code = service.answer(path, content if is_wire else json.loads(content or b"{}")), 200
            except Exception as error:
                found, code = {"error": f"{type(error).__name__}: {error}", "detail": str(error)}, 422
            is_wire = isinstance(found, bytes)
            content = found if is_wire else json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/x-protobuf" if is_wire else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
