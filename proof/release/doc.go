// Package release makes the modules of this repository ready for users.
//
// In development, a nested module has replace lines for the modules beside it. A released module
// has none, because `go install module/cmd@version` refuses a go.mod with replace lines. [Load]
// reads versions.yaml and each go.mod. [Build] makes the go.mod and the go.sum that a released
// module has, and writes a module proxy to a folder. [Checker] uses each module from that proxy
// alone, as a user would. [Tag] commits the result of Build, and tags the commit.
package release
