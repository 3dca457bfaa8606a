/** The template of tests that need none in particular. */
export const template = process.env.BOTHY_E2E_TEMPLATE ?? "python-3.12";

/** Asks again and again until the answer is yes, for at most so long. */
export async function until(what: string, condition: () => Promise<boolean>, seconds = 60): Promise<void> {
  const end = Date.now() + seconds * 1000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`after ${seconds} seconds still not: ${what}`);
  }
}
