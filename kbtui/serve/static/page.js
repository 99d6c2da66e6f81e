// The token is in a cookie now: take it out of the address bar and the history.
history.replaceState(null, "", "/");
addEventListener("DOMContentLoaded", () => {
  const again = document.getElementById("again");
  again.addEventListener("click", () => location.reload());
  new MutationObserver(() => {
    if (document.body.classList.contains("-closed")) again.focus();
    else document.querySelector(".xterm-helper-textarea")?.focus();
  }).observe(document.body, { attributeFilter: ["class"] });
});
