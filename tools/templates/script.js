// What a mark stands for, at the pointer or under the finger.
(() => {
  const tip = document.getElementById("tip");
  const words = (mark) => {
    if (mark.dataset.tip) return mark.dataset.tip;
    const row = mark.parentNode.dataset;
    const column = Math.round((mark.x.baseVal.value - Number(row.left)) / Number(row.step));
    return `${row.row}, layer ${column}: ${mark.dataset.v}`;
  };
  const show = (event) => {
    const mark = event.target.closest && event.target.closest("[data-tip], [data-v]");
    if (!mark) { tip.className = ""; return; }
    tip.textContent = words(mark);
    const left = Math.min(Math.max(event.clientX - tip.offsetWidth / 2, 8), innerWidth - tip.offsetWidth - 8);
    const above = event.clientY - tip.offsetHeight - 12;
    tip.style.transform = `translate(${left}px, ${above < 4 ? event.clientY + 16 : above}px)`;
    tip.className = "shown";
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("click", show);
  addEventListener("scroll", () => { tip.className = ""; }, { passive: true });
})();
