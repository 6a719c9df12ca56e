// What the client tests share: running named cases, and expecting a refusal.
import assert from "node:assert/strict";

// Prints one line a case; exits with 1 at the first that fails.
export async function runCases(cases) {
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run();
      console.log(`ok: ${name}`);
    } catch (error) {
      console.log(`FAILED: ${name}: ${error.stack}`);
      process.exit(1);
    }
  }
}

// The error that a call is refused with, of the client's class for its status.
export async function refusal(call, errorClass, status, message) {
  const error = await call.then(
    () => assert.fail("the request was accepted"),
    (reason) => reason,
  );
  assert.ok(error instanceof errorClass, String(error));
  assert.equal(error.status, status);
  assert.match(error.message, message);
  return error;
}

// Two calls at once, the second with a nested object, as the model writes them.
export const twoCalls =
  "So.\n\n<｜DSML｜ calls>\n" +
  '<｜DSML｜ invoke name="weather">\n<｜DSML｜ parameter name="city" string="true">Ulm "Süd"' +
  "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n" +
  '<｜DSML｜ invoke name="route">\n<｜DSML｜ parameter name="stops" string="false">' +
  '{"from": "A", "via": [1, {"x": null}]}</｜DSML｜ parameter>\n' +
  '<｜DSML｜ parameter name="fast" string="false">true</｜DSML｜ parameter>\n' +
  "</｜DSML｜ invoke>\n</｜DSML｜ calls>";
export const weatherArguments = { city: 'Ulm "Süd"' };
export const routeArguments = { stops: { from: "A", via: [1, { x: null }] }, fast: true };
export const parameters = { type: "object", properties: {} };
