// The official OpenAI client against a running server: node openai_test.js BASE_URL MODEL.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { refusal, runCases } from "./cases.js";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0, timeout: 60_000 });

const question = {
  model,
  messages: [{ role: "user", content: "What comes after Friday?" }],
  temperature: 0,
  max_tokens: 32,
  thinking: { type: "disabled" },
};

async function collect(stream) {
  const seen = { text: "", reasoning: "", finish: null, usage: null, chunks: 0 };
  for await (const chunk of stream) {
    const choice = chunk.choices[0];
    seen.chunks += 1;
    seen.text += choice.delta?.content ?? choice.text ?? "";
    seen.reasoning += choice.delta?.reasoning_content ?? "";
    seen.finish = choice.finish_reason ?? seen.finish;
    seen.usage = chunk.usage ?? seen.usage;
  }
  return seen;
}

async function refused(call, status, message) {
  const error = await refusal(call, OpenAI.APIError, status, message);
  assert.equal(error.type, "invalid_request_error");
}

const timer = {
  name: "set_timer",
  description: "Start a timer",
  parameters: {
    type: "object",
    properties: { minutes: { type: "integer" }, label: { type: "string" } },
    required: ["minutes"],
  },
};

const cases = {
  async "lists its model"() {
    const page = await client.models.list();
    assert.ok(page.data.some((entry) => entry.id === model));
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async "answers a chat, whole and streamed, with the same text"() {
    const whole = await client.chat.completions.create(question);
    const text = whole.choices[0].message.content;
    assert.ok(text.length > 0);
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
    const seen = await collect(
      await client.chat.completions.create({
        ...question,
        stream: true,
        stream_options: { include_usage: true },
      }),
    );
    assert.equal(seen.text, text);
    assert.equal(seen.finish, whole.choices[0].finish_reason);
    assert.equal(seen.usage.completion_tokens, whole.usage.completion_tokens);
    assert.ok(seen.chunks > 2);
  },
  async "streams reasoning apart from content"() {
    const seen = await collect(
      await client.chat.completions.create({
        ...question,
        messages: [{ role: "user", content: "What is 12 plus 30?" }],
        thinking: { type: "enabled" },
        max_tokens: 200,
        stream: true,
      }),
    );
    assert.ok(seen.reasoning.length > 0);
  },
  async "calls a tool, whole and streamed"() {
    const asked = {
      ...question,
      max_tokens: 300,
      tools: [{ type: "function", function: timer }],
      messages: [{ role: "user", content: "Set a timer for 41 minutes for the rope." }],
    };
    const whole = await client.chat.completions.create(asked);
    const helper = client.beta.chat.completions.stream({ ...asked, stream: true });
    for (const { choices } of [whole, await helper.finalChatCompletion()]) {
      assert.equal(choices[0].finish_reason, "tool_calls", JSON.stringify(choices));
      const called = choices[0].message.tool_calls[0].function;
      assert.equal(called.name, "set_timer");
      assert.equal(typeof JSON.parse(called.arguments).minutes, "number");
    }
  },
  async "answers in JSON"() {
    const whole = await client.chat.completions.create({
      ...question,
      response_format: { type: "json_object" },
      messages: [{ role: "user", content: "Give colour and item as JSON: a red boat." }],
    });
    assert.equal(JSON.parse(whole.choices[0].message.content).item, "boat");
  },
  async "answers a response, whole, streamed and continued"() {
    const asked = {
      model, temperature: 0, max_output_tokens: 32, reasoning: { effort: "none" },
      input: "What comes after Friday?",
    };
    const whole = await client.responses.create(asked);
    assert.match(whole.output_text, /Saturday/);
    let text = "";
    for await (const event of await client.responses.create({ ...asked, stream: true }))
      if (event.type === "response.output_text.delta") text += event.delta;
    assert.equal(text, whole.output_text);
    const next = await client.responses.create({
      ...asked, input: "Hello", previous_response_id: whole.id,
    });
    assert.ok(next.usage.input_tokens > whole.usage.input_tokens);
    const thought = await client.responses.create({
      ...asked, max_output_tokens: 200, reasoning: { effort: "high" },
    });
    assert.equal(thought.output[0].type, "reasoning");
    const tool = await client.responses.create({
      ...asked, max_output_tokens: 300, input: "Set a timer for 41 minutes for the rope.",
      tools: [{ type: "function", strict: false, ...timer }],
    });
    assert.equal(tool.output.at(-1).name, "set_timer");
    await refused(client.responses.create({ ...asked, temperature: 3 }), 400, /range of temperature/);
  },
  async "works with the client's stream helper"() {
    const stream = client.beta.chat.completions.stream({ ...question, stream: true });
    const final = await stream.finalChatCompletion();
    assert.ok(final.choices[0].message.content.length > 0);
  },
  async "answers a completion, whole and streamed, with the same text"() {
    const prompt = { model, prompt: "Once upon a time", max_tokens: 12, seed: 5 };
    const whole = await client.completions.create(prompt);
    const seen = await collect(await client.completions.create({ ...prompt, stream: true }));
    assert.equal(seen.text, whole.choices[0].text);
    assert.equal(whole.object, "text_completion");
    assert.equal(seen.finish, whole.choices[0].finish_reason);
    assert.deepEqual(seen.usage, whole.usage);
  },
  async "stops at a stop string"() {
    const full = (await client.chat.completions.create(question)).choices[0].message.content;
    const stop = full.slice(2, 5);
    const cut = await client.chat.completions.create({ ...question, stop });
    assert.equal(cut.choices[0].message.content, full.slice(0, full.indexOf(stop)));
    assert.equal(cut.choices[0].finish_reason, "stop");
  },
  async "gives log probabilities, whole and streamed"() {
    const asked = { ...question, logprobs: true, top_logprobs: 3 };
    const answer = await client.chat.completions.create(asked);
    const whole = answer.choices[0];
    const entries = whole.logprobs.content;
    assert.equal(answer.fathom.logprobs_mode, "raw");
    const bytes = entries.flatMap((entry) => entry.bytes);
    assert.equal(Buffer.from(bytes).toString(), whole.message.content);
    for (const entry of entries) {
      assert.ok(entry.logprob <= 0);
      assert.equal(entry.top_logprobs.length, 3);
      assert.equal(entry.top_logprobs[0].logprob, entry.logprob); // greedy
    }
    const streamed = [];
    for await (const chunk of await client.chat.completions.create({ ...asked, stream: true }))
      streamed.push(...(chunk.choices[0].logprobs?.content ?? []));
    assert.deepEqual(streamed, entries);

    const completion = await client.completions.create({
      model, prompt: "Once upon a time", max_tokens: 8, seed: 3, logprobs: 2,
    });
    const { tokens, token_logprobs, top_logprobs, text_offset } = completion.choices[0].logprobs;
    assert.equal(tokens.join(""), completion.choices[0].text);
    assert.equal(token_logprobs.length, tokens.length);
    assert.equal(top_logprobs.length, tokens.length);
    assert.equal(text_offset[0], 0);
  },
  async "answers with two choices, the first that of the same seed alone"() {
    const prompt = { model, prompt: "Once upon a time", max_tokens: 16, seed: 11 };
    const alone = await client.completions.create(prompt);
    const both = await client.completions.create({ ...prompt, n: 2 });
    assert.equal(both.choices.length, 2);
    assert.equal(both.choices[0].text, alone.choices[0].text);
    assert.notEqual(both.choices[1].text, alone.choices[0].text);
    assert.equal(both.usage.prompt_tokens, alone.usage.prompt_tokens);
    const texts = ["", ""];
    const ends = [];
    for await (const chunk of await client.completions.create({ ...prompt, n: 2, stream: true })) {
      const choice = chunk.choices[0];
      texts[choice.index] += choice.text;
      if (choice.finish_reason) ends.push(choice.index);
    }
    assert.deepEqual(texts, both.choices.map((choice) => choice.text));
    assert.deepEqual(ends.sort(), [0, 1]);
  },
  async "biases and forbids tokens"() {
    const prompt = { model, prompt: "Once upon a time", max_tokens: 4, temperature: 0, logprobs: 1 };
    const plain = await client.completions.create(prompt);
    const only = await client.completions.create({ ...prompt, logit_bias: { 65: 100 } });
    assert.equal(new Set(only.choices[0].logprobs.tokens).size, 1);
    assert.notEqual(only.choices[0].text, plain.choices[0].text);
    const one = await client.completions.create({ ...prompt, allowed_token_ids: [65] });
    assert.equal(one.choices[0].text, only.choices[0].text);
  },
  async "reports errors in the client's own classes"() {
    await refused(
      client.chat.completions.create({ ...question, temperature: 3 }),
      400,
      /valid range of temperature is \[0, 2\]/,
    );
    await refused(
      client.chat.completions.create({ ...question, n: 17 }),
      400,
      /valid range of n is \[1, 16\]/,
    );
    await refused(
      client.chat.completions.create({ ...question, logit_bias: { 99999999: 1 } }),
      400,
      /logit_bias names token 99999999; ids of this model are 0 to/,
    );
    await refused(
      client.chat.completions.create({ ...question, model: "nope", stream: true }),
      400,
      /you passed nope/,
    );
    await refused(
      client.chat.completions.create({
        ...question,
        messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "https://a.b/c.png" } }] }],
      }),
      400,
      /images are not supported/,
    );
  },
  async "survives an aborted stream"() {
    const stream = await client.completions.create({
      model,
      prompt: "Once upon a time",
      max_tokens: 2000,
      stream: true,
    });
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      break; // leaving the loop aborts the request
    }
    assert.ok((await client.chat.completions.create(question)).choices.length === 1);
  },
};

await runCases(cases);
