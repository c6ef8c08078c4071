// Fails unless an installed npm tree is the locked one: compare.mjs LOCK INSTALLED
// Optional packages may be absent (other systems), and may be extra if their lock entry could not be made.
import { readFileSync } from 'node:fs';

const [locked, installed] = process.argv.slice(2).map((file) => JSON.parse(readFileSync(file, 'utf8')).packages);
const wrong = [];
for (const [path, pin] of Object.entries(locked)) {
  if (path === '') continue;
  const found = installed[path];
  if (!found) {
    if (!pin.optional) wrong.push(`${path}: ${pin.version} is missing`);
  } else if (found.version !== pin.version || found.integrity !== pin.integrity) {
    wrong.push(`${path}: ${found.version} instead of ${pin.version}, or other content`);
  }
}
for (const [path, found] of Object.entries(installed)) {
  if (!locked[path] && !found.optional) wrong.push(`${path}: ${found.version} is not locked`);
}
if (wrong.length) {
  console.error(`the installed packages are not those of the lock file:\n  ${wrong.join('\n  ')}`);
  process.exit(1);
}
