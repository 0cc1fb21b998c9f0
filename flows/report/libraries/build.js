// Makes a script of each file in `entries`, and LICENSES of the packages that are in them.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const { metafile } = await build({
  entryPoints: readdirSync("entries").map((name) => `entries/${name}`),
  outdir: ".",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  define: { "process.env.NODE_ENV": '"production"' },
  legalComments: "none",
  metafile: true,
});

const bundled = Object.values(metafile.outputs).flatMap(({ inputs }) => Object.entries(inputs)).filter(([, { bytesInOutput }]) => bytesInOutput);
const folders = bundled.map(([path]) => path.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//)?.[1]);
// The packages by the text of their licence, which many share.
const packages = new Map();
for (const folder of [...new Set(folders)].filter(Boolean).sort()) {
  const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  if (!file) throw new Error(`${name} has no file with its licence`);
  const text = readFileSync(`${folder}/${file}`, "utf8").trim();
  packages.set(text, [...(packages.get(text) || []), `${name} ${version} (${license})`]);
}
const parts = [...packages].map(([text, names]) => `${names.join("\n")}\n\n${text}\n`);
writeFileSync("LICENSES", `The packages of charts.js and tables.js, and their licences.\n\n${parts.join(`\n${"-".repeat(80)}\n\n`)}`);
