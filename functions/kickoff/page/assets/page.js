// Refreshes #live while something on the page may still change. Without this script the page reads the same.
"use strict";
(() => {
  const PERIOD = 2000;
  let tag = "";

  async function refresh() {
    const live = document.querySelector("#live[data-live]");
    if (!live) return;
    const editing = live.contains(document.activeElement) && document.activeElement.tagName === "INPUT";
    if (document.visibilityState === "visible" && !editing) {
      try {
        const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        if (answer.status === 200) {
          tag = answer.headers.get("ETag") || "";
          replace(live, new DOMParser().parseFromString(await answer.text(), "text/html"));
        }
      } catch (error) {
        // The server is away: try again at the next turn.
      }
    }
    setTimeout(refresh, PERIOD);
  }

  function replace(live, fresh) {
    const next = fresh.querySelector("#live");
    if (!next || next.innerHTML === live.innerHTML) return;
    const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...live.querySelectorAll("details")].map((part) => part.open);
    live.replaceWith(next);
    next.querySelectorAll("details").forEach((part, index) => { part.open = Boolean(open[index]); });
    if (focused) document.getElementById(focused)?.focus();
    document.title = fresh.title;
  }

  setTimeout(refresh, PERIOD);
})();
