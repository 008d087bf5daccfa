// Before the first paint, so that a chosen theme does not flash. A file of its own: the policy forbids inline scripts.
try {
  const theme = localStorage.getItem('theme');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
} catch {
  // Storage is blocked: the system's theme it is.
}
