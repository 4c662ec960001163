// Refreshes #live while something on the page may still change. Without this script the page reads the same.
"use strict";
(() => {
  const FASTEST = 2000, SLOWEST = 15000;
  let tag = "", period = FASTEST, timer = 0;

  async function refresh() {
    const live = document.querySelector("#live[data-live]");
    if (!live) return;
    if (document.visibilityState === "visible" && !busy(live)) {
      try {
        const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        period = Math.min(period * 1.5, SLOWEST);
        if (answer.status === 200) {
          tag = answer.headers.get("ETag") || "";
          if (replace(live, new DOMParser().parseFromString(await answer.text(), "text/html"))) period = FASTEST;
        }
      } catch (error) {
        period = SLOWEST; // The server is away: try again later.
      }
    }
    timer = setTimeout(refresh, period);
  }

  // Someone types, or has marked text to copy: leave what is there.
  function busy(live) {
    const selection = getSelection();
    return (live.contains(document.activeElement) && document.activeElement.tagName === "INPUT") ||
      (!selection.isCollapsed && live.contains(selection.anchorNode));
  }

  function replace(live, fresh) {
    const next = fresh.querySelector("#live");
    if (!next || next.outerHTML === live.outerHTML) return false;
    const focused = live.contains(document.activeElement) ? place(document.activeElement) : "";
    const open = [...live.querySelectorAll("details")].map((part) => part.open);
    const scrolled = [...live.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
    document.adoptNode(next);
    next.querySelectorAll("details").forEach((part, index) => { part.open = Boolean(open[index]); });
    live.replaceWith(next);
    next.querySelectorAll(".scroll").forEach((part, index) => { part.scrollLeft = scrolled[index] || 0; });
    if (focused) next.querySelector(focused)?.focus({ preventScroll: true });
    document.title = fresh.title;
    say(next.dataset.news);
    inline();
    return true;
  }

  // A selector by which the focused element is found again.
  function place(element) {
    if (element.id) return `#${CSS.escape(element.id)}`;
    const href = element.getAttribute("href");
    return href ? `a[href="${CSS.escape(href)}"]` : `${element.tagName}[tabindex], ${element.tagName}`;
  }

  // Screen readers hear what changed, and not the seconds that pass.
  function say(text) {
    const news = document.getElementById("news");
    if (text && news.textContent !== text) news.textContent = text;
  }

  // After a failure the last lines are what people want: fetch them beside the page.
  async function inline() {
    const link = document.querySelector("#logs[data-inline]");
    if (!link) return;
    link.removeAttribute("data-inline");
    try {
      const answer = await fetch(link.href);
      const tails = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#tails");
      if (answer.ok && tails) link.parentElement.after(document.adoptNode(tails));
    } catch (error) {
      // The link still leads there.
    }
  }

  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState !== "visible") return;
    clearTimeout(timer);
    period = FASTEST;
    refresh();
  });
  say(document.getElementById("live")?.dataset.news);
  inline();
  timer = setTimeout(refresh, period);
})();
