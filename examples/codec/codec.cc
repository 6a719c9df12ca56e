// Answers one request from a script, without engine or model:
//
//   codec_example tokenizer.json chat|messages|responses request.json "what the model says"
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace {

using namespace fathom;

constexpr std::size_t kChunkTokens = 3;

void send(const std::string& bytes) {
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

// What a client gets whose request cannot be answered.
int refuse(const Status& status) {
    const RequestError error = request_error(status);
    std::printf("%s\n", error.body.c_str());
    std::fprintf(stderr, "status %d\n", error.http_status);
    return 1;
}

Status answer(const Codec& codec, const EncodedRequest& request, const std::string& script) {
    AnswerStream stream = codec.answer(request, {.id = "example", .call_id_seed = 1});
    send(stream.start({.prompt_tokens = static_cast<std::int64_t>(request.prompt.size())}));

    // Here a model would run. The script's special tokens are meant as such.
    const std::vector<TokenId> output = codec.tokenizer().encode(script, true);
    std::span<const TokenId> rest = output;
    while (!rest.empty() && !stream.finished()) {
        const std::span<const TokenId> chunk = rest.first(std::min(kChunkTokens, rest.size()));
        rest = rest.subspan(chunk.size());
        FATHOM_ASSIGN(const std::string bytes, stream.push(chunk));
        send(bytes);
    }
    send(stream.finish(BackendFinish::stop));
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: codec_example TOKENIZER PROTOCOL REQUEST SCRIPT\n");
        return 2;
    }
    const std::vector<std::string> words(argv + 1, argv + argc);
    const Result<Codec> codec = Codec::load(words[0], {});
    if (!codec.ok()) return refuse(codec.status());
    const Result<Protocol> protocol = parse_protocol(words[1]);
    if (!protocol.ok()) return refuse(protocol.status());

    std::ifstream file(words[2], std::ios::binary);
    const std::string body(std::istreambuf_iterator<char>(file), {});
    const Result<EncodedRequest> request = codec->encode(*protocol, body);
    if (!request.ok()) return refuse(request.status());
    std::fprintf(stderr, "%zu prompt tokens: %s\n", request->prompt.size(),
                 codec->tokenizer().decode(request->prompt).c_str());

    const Status status = answer(*codec, *request, words[3]);
    return status.ok() ? 0 : refuse(status);
}
