/* Search runs in a worker, which a browser does not start from a page on disk (file://). There a hidden frame runs
   the same script in its place. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (message) => {
        const event = new MessageEvent("message", { data: message });
        this.onmessage?.(event);
        this.dispatchEvent(event);
      };
      const script = inner.document.createElement("script");
      this.ready = new Promise((loaded) => script.addEventListener("load", loaded));
      script.src = new URL(url, location.href).href;
      inner.document.body.append(script);
      this.inner = inner;
    }

    postMessage(message) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data: message })));
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
