// Package docs holds the pages of the documentation, which the command `outbox docs` prints and
// searches.
package docs

import "embed"

// Pages are the pages, in Markdown, by their paths in this folder.
//
//go:embed *.md shapes how-to reference/*.md reliability/*.md zh-CN
var Pages embed.FS
