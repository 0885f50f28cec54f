"""The script of the pages: theme, copying, uploads, choosing rows, and keeping the state of controls across updates."""

from __future__ import annotations

__all__ = ["THEME_COOKIE", "script"]

THEME_COOKIE = "kintune_theme"
"""The cookie that remembers "dark" or "light", once somebody has chosen."""

_SCRIPT = """
(() => {
  const kept = new Map(), open = new Map();
  let focused = '';
  const boxes = form => Array.from(form.querySelectorAll('input[data-keep]'));
  document.addEventListener('change', e => {
    if (e.target.matches('input[data-every]')) boxes(e.target.form).forEach(box => {
      box.checked = e.target.checked; kept.set(box.value, box.checked); });
    else if (e.target.matches('input[data-keep]')) kept.set(e.target.value, e.target.checked);
    else return;
    count();
  });
  document.addEventListener('toggle', e => { if (e.target.id) open.set(e.target.id, e.target.open); }, true);
  document.addEventListener('focusin', e => { focused = e.target.id || ''; });
  function chosen(form, states) {
    return boxes(form).filter(box => box.checked && (!states || states.split(' ').includes(box.dataset.state)));
  }
  function count() {
    document.querySelectorAll('[data-needs]').forEach(button => {
      const [least, most] = button.dataset.needs.split('-').map(Number);
      const found = chosen(button.form, button.dataset.states).length;
      button.disabled = found < least || found > most;
    });
    document.querySelectorAll('[data-chosen]').forEach(said => {
      const form = said.closest('form'), found = chosen(form).length, all = form.querySelector('input[data-every]');
      const words = found ? found + ' chosen' : 'none chosen';
      if (said.textContent !== words) said.textContent = words;
      all.checked = found > 0 && found === boxes(form).length;
      all.indeterminate = found > 0 && !all.checked;
    });
  }
  function ask(button) {
    const question = document.getElementById(button.dataset.asks), names = question.querySelector('[data-names]');
    const found = chosen(button.form, button.dataset.states).map(box => box.dataset.name);
    names.replaceChildren(...[...found.slice(0, 8), ...(found.length > 8 ? [`and ${found.length - 8} more`] : [])]
      .map(words => Object.assign(document.createElement('li'), {textContent: words})));
    question.showModal();
  }
  document.addEventListener('submit', e => {
    const states = e.submitter && e.submitter.dataset.states;
    if (!states) return;
    const left = boxes(e.target).filter(box => !states.split(' ').includes(box.dataset.state));
    left.forEach(box => { box.disabled = true; });
    setTimeout(() => left.forEach(box => { box.disabled = false; }));
  });
  new MutationObserver(() => {
    document.querySelectorAll('input[data-keep]').forEach(box => {
      if (kept.has(box.value)) box.checked = kept.get(box.value); });
    document.querySelectorAll('details[id]').forEach(one => { if (open.has(one.id)) one.open = open.get(one.id); });
    if (focused && document.activeElement === document.body) {
      const again = document.getElementById(focused);
      if (again) again.focus({preventScroll: true});
    }
    count();
  }).observe(document.documentElement, {childList: true, subtree: true});
  document.addEventListener('change', e => { if (e.target.matches('[data-submits]')) e.target.form.requestSubmit(); });
  document.addEventListener('click', async e => {
    const button = e.target.closest('button');
    if (!button) return;
    if (button.dataset.asks) ask(button);
    if (button.dataset.closes !== undefined) button.closest('dialog').close();
    if (button.dataset.theme !== undefined) {
      const dark = !document.body.classList.contains('body--dark');
      setDark(dark);
      document.cookie = 'THEME=' + (dark ? 'dark' : 'light') + ';path=/;max-age=31536000;samesite=strict';
    }
    if (button.dataset.copies) {
      const source = document.getElementById(button.dataset.copies);
      try { await navigator.clipboard.writeText(source.textContent); button.textContent = 'Copied'; }
      catch { getSelection().selectAllChildren(source); button.textContent = 'Press Ctrl-C'; }
    }
  });
  function upload(zone, file) {
    const bar = zone.querySelector('progress'), said = zone.querySelector('[role=status]');
    const most = Number(zone.dataset.most);
    if (file.size > most) {
      said.textContent = 'That file is larger than your limit (' + Math.round(most / 1048576) + ' MB).'; return; }
    const request = new XMLHttpRequest();
    request.open('POST', '/api/v1/models?name=' + encodeURIComponent(file.name.slice(-200)));
    request.setRequestHeader('Content-Type', 'application/octet-stream');
    request.upload.onprogress = e => { bar.hidden = false; bar.max = e.total; bar.value = e.loaded;
      said.textContent = e.loaded < e.total ? 'Sending ' + file.name : 'Inspecting the file'; };
    request.onerror = () => { bar.hidden = true; said.textContent = 'The service does not answer; try again.'; };
    request.onload = () => {
      let answer = {};
      try { answer = JSON.parse(request.responseText); } catch { /* said below */ }
      if (request.status < 300) location.href = '/new?model=' + answer.id;
      else { bar.hidden = true; said.textContent = answer.error || 'The service answers ' + request.status + '.'; }
    };
    said.textContent = 'Sending ' + file.name;
    request.send(file);
  }
  async function sendSets(zone, files) {
    const said = zone.querySelector('[role=status]'), most = Number(zone.dataset.most);
    for (const file of files) {
      const told = {name: file.name, field: zone.dataset.sets};
      said.textContent = 'Sending ' + file.name;
      if (file.size > most) told.error = 'it is larger than your limit (' + Math.round(most / 1048576) + ' MB)';
      else try {
        const name = encodeURIComponent(file.name.slice(-200));
        const reply = await fetch(`/api/v1/inputs?model=${zone.dataset.model}&name=${name}`,
          {method: 'POST', headers: {'Content-Type': 'application/octet-stream'}, body: file});
        const answer = await reply.json().catch(() => ({}));
        if (reply.ok) told.id = answer.id;
        else told.error = answer.error || 'the service answers ' + reply.status;
      } catch { told.error = 'the service does not answer; choose it again'; }
      emitEvent('set_of_inputs', told);
    }
    said.textContent = '';
  }
  function send(zone, files) {
    if (!files.length) return;
    if (zone.dataset.sets !== undefined) sendSets(zone, Array.from(files)); else upload(zone, files[0]);
  }
  document.addEventListener('change', e => { const zone = e.target.closest('.drop');
    if (zone && e.target.type === 'file') send(zone, e.target.files); });
  for (const kind of ['dragover', 'dragleave', 'drop']) document.addEventListener(kind, e => {
    const zone = e.target.closest && e.target.closest('.drop');
    if (!zone) return;
    e.preventDefault();
    zone.classList.toggle('over', kind === 'dragover');
    if (kind === 'drop') send(zone, e.dataTransfer.files);
  });
})();
"""


def script() -> str:
    """Returns the script, for the head of every page."""
    return _SCRIPT.replace("THEME", THEME_COOKIE)
