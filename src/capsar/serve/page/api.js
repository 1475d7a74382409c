// Sends requests to the service, and retries when it is busy.

export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let key = "";

export function useKey(value) {
  key = value.trim();
}

export async function request(path, content, { onWait = () => {}, attempts = 4 } = {}) {
  for (let attempt = 1; ; attempt += 1) {
    const headers = key ? { authorization: `Bearer ${key}` } : {};
    const options = { headers };
    if (content !== undefined) {
      options.method = "POST";
      options.headers["content-type"] = "application/json";
      options.body = JSON.stringify(content);
    }
    let response;
    try {
      response = await fetch(path, options);
    } catch {
      throw new RequestError(0, "The service cannot be reached.");
    }
    if (response.ok) return response.json();
    if (response.status === 503 && attempt < attempts) {
      const seconds = Number(response.headers.get("retry-after")) || 1;
      onWait(seconds);
      await new Promise((done) => setTimeout(done, 1000 * seconds));
      continue;
    }
    throw new RequestError(response.status, await errorMessage(response));
  }
}

async function errorMessage(response) {
  try {
    return (await response.json()).message;
  } catch {
    return `The service returned status ${response.status}.`;
  }
}
