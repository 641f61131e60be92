package release_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/release"
)

var boxTags = []string{"v0.2.0", "adapter/v0.2.0", "cmd/tool/v0.2.0", "plain/v0.2.0"}

// state is the part of a repository that a failed release must not change.
func state(t *testing.T, dir string) string {
	t.Helper()
	return git(t, dir, "show-ref", "--head") + git(t, dir, "status", "--porcelain", "--branch") + git(t, dir, "ls-files", "--stage")
}

func TestAReleaseTagsACommitWithoutReplaceLinesAndLeavesTheBranchItsFiles(t *testing.T) {
	t.Parallel()
	dir := commitBox(t, nil)
	head, files := git(t, dir, "rev-parse", "HEAD"), git(t, dir, "ls-files", "--stage")
	tagged, err := release.Tag(t.Context(), dir)
	require.NoError(t, err)
	require.ElementsMatch(t, boxTags, tagged.Tags)
	nested := slices.DeleteFunc(slices.Clone(tagged.Tags), func(tag string) bool { return tag == "v0.2.0" })
	require.Len(t, nested, len(tagged.Tags)-1)
	require.Equal(t, "git push --atomic origin main "+strings.Join(nested, " ")+" && git push origin v0.2.0", tagged.Push(), "a push of more than three tags starts no workflow")
	for _, tag := range boxTags {
		require.Equal(t, "tag", git(t, dir, "cat-file", "-t", tag), "annotated")
		require.Equal(t, tagged.Commit, git(t, dir, "rev-parse", tag+"^{commit}"))
	}
	require.Equal(t, head, git(t, dir, "rev-parse", tagged.Commit+"^@"), "its only parent")
	require.ElementsMatch(t, []string{"adapter/go.mod", "adapter/go.sum", "cmd/tool/go.mod", "cmd/tool/go.sum", "plain/go.mod", "plain/go.sum"},
		strings.Fields(git(t, dir, "diff", "--name-only", head, tagged.Commit)))
	require.NotContains(t, git(t, dir, "show", "v0.2.0:cmd/tool/go.mod"), "replace")

	require.Equal(t, head+"\n"+tagged.Commit, git(t, dir, "rev-parse", "main^@"), "the branch continues after both")
	require.Empty(t, git(t, dir, "diff", head, "main"))
	require.Empty(t, git(t, dir, "status", "--porcelain"))
	require.Equal(t, files, git(t, dir, "ls-files", "--stage"))
	require.NoError(t, release.CheckTags(t.Context(), dir, "v0.2.0"))
}

// The go command makes a zip from a tag. Its checksum is the one in go.sum, or users see a
// security error.
func TestTheGoCommandGetsTheSameChecksumsFromTheTags(t *testing.T) {
	t.Parallel()
	dir := commitBox(t, nil)
	repository, err := release.Load(t.Context(), dir)
	require.NoError(t, err)
	built, err := release.Build(repository, t.TempDir())
	require.NoError(t, err)
	_, err = release.Tag(t.Context(), dir)
	require.NoError(t, err)
	// Git takes the repository on disk for the one on the network.
	config := filepath.Join(t.TempDir(), "gitconfig")
	git(t, dir, "config", "--file", config, "url.file://"+dir+".insteadOf", "https://github.com/example/box")
	download := func(query string) (result struct{ Version, Sum, GoModSum string }) {
		cmd := exec.Command("go", "mod", "download", "-json", query)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+config, "GIT_ALLOW_PROTOCOL=file:https", "GOPROXY=direct", "GOPRIVATE=", "GONOPROXY=",
			"GOSUMDB=off", "GOWORK=off", "GOFLAGS=-modcacherw", "GOTOOLCHAIN=local", "GOMODCACHE="+filepath.Join(cmd.Dir, "cache"))
		out, err := cmd.Output()
		require.NoError(t, err, "%s", out)
		require.NoError(t, json.Unmarshal(out, &result))
		return result
	}
	var sums string
	for _, m := range built.Modules {
		sums += string(m.GoSum)
	}
	for _, name := range []string{"github.com/example/box", "github.com/example/box/adapter"} {
		got := download(name + "@v0.2.0")
		require.Contains(t, sums, name+" v0.2.0 "+got.Sum+"\n")
		require.Contains(t, sums, name+" v0.2.0/go.mod "+got.GoModSum+"\n")
	}
	require.Regexp(t, `^v0\.2\.1-0\.\d+-`, download("github.com/example/box@main").Version, "main comes after the release")
}

func TestATagIsSignedIfGitHasAKey(t *testing.T) {
	t.Parallel()
	dir := commitBox(t, nil)
	sign(t, dir, "")
	_, err := release.Tag(t.Context(), dir)
	require.NoError(t, err)
	for _, tag := range boxTags {
		require.Contains(t, git(t, dir, "cat-file", "tag", tag), "-----BEGIN PGP SIGNATURE-----")
	}
}

// sign makes git sign with a program that signs everything. It first runs a line of shell.
func sign(t *testing.T, dir, line string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "gpg")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\ncat >/dev/null\n"+line+`
echo "[GNUPG:] BEGIN_SIGNING" >&2
echo "[GNUPG:] SIG_CREATED " >&2
echo "-----BEGIN PGP SIGNATURE-----"
echo "-----END PGP SIGNATURE-----"
`), 0o755))
	git(t, dir, "config", "user.signingkey", "box")
	git(t, dir, "config", "gpg.format", "openpgp")
	git(t, dir, "config", "gpg.program", program)
}

func TestAReleaseThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		harm func(t *testing.T, dir string)
		want string
	}{
		"a tag exists": {
			func(t *testing.T, dir string) { git(t, dir, "tag", "cmd/tool/v0.2.0") },
			"tag cmd/tool/v0.2.0 exists",
		},
		"a file is changed": {
			func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "box.go"), "package box\n") },
			"the working tree has changes; commit or remove them:\nM box.go",
		},
		"a file is not added": {
			func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "new.go"), "package box\n") },
			"?? new.go",
		},
		"no branch is checked out": {
			func(t *testing.T, dir string) { git(t, dir, "checkout", "--quiet", "--detach") },
			"check out the branch of the release",
		},
		"another branch is checked out": {
			func(t *testing.T, dir string) { git(t, dir, "checkout", "--quiet", "-b", "other") },
			"the branch is other",
		},
		"a higher version has a tag": {
			func(t *testing.T, dir string) { git(t, dir, "tag", "v0.3.0") },
			"v0.2.0, which is lower than tag v0.3.0",
		},
		"the third signature fails": {
			func(t *testing.T, dir string) {
				count := filepath.Join(t.TempDir(), "count")
				sign(t, dir, `echo >>`+count+`; [ $(wc -l <`+count+`) -lt 3 ] || exit 1`)
			},
			"gpg failed to sign the data",
		},
		"the branch moves meanwhile": {
			func(t *testing.T, dir string) {
				sign(t, dir, "git -C "+dir+" update-ref refs/heads/main $(git -C "+dir+" rev-parse other)")
				git(t, dir, "branch", "other")
				git(t, dir, "checkout", "--quiet", "other")
				git(t, dir, "commit", "--quiet", "--allow-empty", "-m", "Other")
				git(t, dir, "checkout", "--quiet", "main")
			},
			"move branch main",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := commitBox(t, nil)
			test.harm(t, dir)
			before := state(t, dir)
			_, err := release.Tag(t.Context(), dir)
			require.ErrorContains(t, err, test.want)
			if name == "the branch moves meanwhile" {
				require.Empty(t, git(t, dir, "tag"))
				return
			}
			require.Equal(t, before, state(t, dir))
		})
	}
}

func TestTagsThatAreNotOfMakeReleaseAreNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		harm func(t *testing.T, dir string)
		want string
	}{
		"no tag":    {func(t *testing.T, dir string) { git(t, dir, "tag", "-d", "v0.2.0") }, "there is no tag v0.2.0"},
		"a missing": {func(t *testing.T, dir string) { git(t, dir, "tag", "-d", "plain/v0.2.0") }, `tag plain/v0.2.0 is of commit ""`},
		"a moved":   {func(t *testing.T, dir string) { git(t, dir, "tag", "-f", "-m", "x", "plain/v0.2.0", "main") }, "tag plain/v0.2.0 is of commit"},
		"a replace line": {
			func(t *testing.T, dir string) {
				for _, tag := range boxTags {
					git(t, dir, "tag", "-f", "-m", "x", tag, tag+"^")
				}
				git(t, dir, "commit", "--quiet", "--allow-empty", "-m", "Other")
				for _, tag := range boxTags {
					git(t, dir, "tag", "-f", "-m", "x", tag, "main")
				}
			},
			"tag v0.2.0 has other files than make release makes of its parent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := commitBox(t, nil)
			_, err := release.Tag(t.Context(), dir)
			require.NoError(t, err)
			test.harm(t, dir)
			require.ErrorContains(t, release.CheckTags(t.Context(), dir, "v0.2.0"), test.want)
		})
	}
}
