package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// Tagged is a release that [Tag] made.
type Tagged struct {
	Version, Branch, Commit string
	Tags                    []string
}

// Push are the commands that publish the release. The tag of the root module has a push of its own,
// because GitHub starts no workflow for a push of more than three tags. It comes last: then the modules
// that the workflow checks are all there.
func (t *Tagged) Push() string {
	nested := slices.DeleteFunc(slices.Clone(t.Tags), func(tag string) bool { return tag == t.Version })
	return "git push --atomic origin " + strings.Join(append([]string{t.Branch}, nested...), " ") + " && git push origin " + t.Version
}

// Tag commits the released modules as [Build] makes them, and tags the commit once for each. The
// repository in dir has a branch checked out, and no changes.
//
// The branch keeps its files: a merge whose tree is the branch's own puts the release commit into
// its history, because the go command derives the version of a later commit from the tags before
// it. So neither the index nor a file in dir changes. Tag refuses to begin if a tag exists. If it
// fails, no tag is left, and the branch is where it was.
func Tag(ctx context.Context, dir string) (*Tagged, error) {
	branch, err := git(ctx, dir, "symbolic-ref", "--short", "HEAD")
	if err != nil {
		return nil, fmt.Errorf("release: check out the branch of the release: %w", err)
	}
	if branch != "main" {
		return nil, fmt.Errorf("release: the branch is %s; a release is a commit beside main", branch)
	}
	changes, err := git(ctx, dir, "status", "--porcelain")
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	if changes != "" {
		return nil, fmt.Errorf("release: the working tree has changes; commit or remove them:\n%s", changes)
	}
	head, err := git(ctx, dir, "rev-parse", "HEAD")
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	temporary, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // files in the temporary folder
	repository, err := LoadCommit(ctx, dir, head, filepath.Join(temporary, "commit"))
	if err != nil {
		return nil, err
	}
	t := &Tagged{Version: repository.Versions.Version, Branch: branch}
	if err := t.free(ctx, dir, repository); err != nil {
		return nil, err
	}
	built, err := Build(repository, filepath.Join(temporary, "proxy"))
	if err != nil {
		return nil, err
	}
	tree, err := built.tree(ctx, dir, head, filepath.Join(temporary, "index"))
	if err != nil {
		return nil, err
	}
	if t.Commit, err = commit(ctx, dir, tree, "Release "+t.Version+`

The modules require each other at this version, without replace lines.
`, head); err != nil {
		return nil, err
	}
	merge, err := commit(ctx, dir, head+"^{tree}", branch+" continues after "+t.Version+`

The release commit is in the history, so that later commits have higher versions. Its go.mod
and go.sum files are not taken over: here the modules replace each other.
`, head, t.Commit)
	if err != nil {
		return nil, err
	}
	return t, t.write(ctx, dir, head, merge)
}

// free names the tags, and checks that none exists.
func (t *Tagged) free(ctx context.Context, dir string, r *Repository) error {
	existing, err := tags(ctx, dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range r.Modules {
		if !m.Released {
			continue
		}
		tag := m.Tag(t.Version)
		if existing[tag] != "" {
			errs = append(errs, fmt.Errorf("release: tag %s exists; a tag is never moved, so write the next version into %s", tag, versionsFile))
		}
		t.Tags = append(t.Tags, tag)
	}
	for tag := range existing {
		if semver.Compare(tag, t.Version) > 0 { // the tag of a nested module is no version
			errs = append(errs, fmt.Errorf("release: %s has %s, which is lower than tag %s", versionsFile, t.Version, tag))
		}
	}
	return errors.Join(errs...)
}

// tags are the commits of the tags in a repository.
func tags(ctx context.Context, dir string) (map[string]string, error) {
	out, err := git(ctx, dir, "for-each-ref", "--format=%(refname:strip=2) %(objectname) %(*objectname)", "refs/tags")
	if err != nil {
		return nil, fmt.Errorf("release: list the tags: %w", err)
	}
	commits := map[string]string{}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 1 {
			commits[fields[0]] = fields[len(fields)-1] // the second is of an annotated tag
		}
	}
	return commits, nil
}

// tree writes the tree of a commit with the go.mod and the go.sum of the released modules.
func (b *Built) tree(ctx context.Context, dir, head, index string) (string, error) {
	env := []string{"GIT_INDEX_FILE=" + index}
	if _, err := run(ctx, dir, env, "git", "read-tree", head); err != nil {
		return "", fmt.Errorf("release: %w", err)
	}
	for _, m := range b.Modules {
		for name, data := range map[string][]byte{"go.mod": m.GoMod, "go.sum": m.GoSum} {
			if len(data) == 0 {
				continue
			}
			blob, err := runInput(ctx, dir, env, data, "git", "hash-object", "-w", "--stdin")
			if err != nil {
				return "", fmt.Errorf("release: %w", err)
			}
			entry := "100644," + strings.TrimSpace(blob) + "," + m.name(name)
			if _, err := run(ctx, dir, env, "git", "update-index", "--add", "--cacheinfo", entry); err != nil {
				return "", fmt.Errorf("release: %w", err)
			}
		}
	}
	tree, err := run(ctx, dir, env, "git", "write-tree")
	if err != nil {
		return "", fmt.Errorf("release: %w", err)
	}
	return strings.TrimSpace(tree), nil
}

func commit(ctx context.Context, dir, tree, message string, parents ...string) (string, error) {
	arguments := []string{"commit-tree", tree}
	for _, parent := range parents {
		arguments = append(arguments, "-p", parent)
	}
	if sign, _ := git(ctx, dir, "config", "--type=bool", "commit.gpgsign"); sign == "true" {
		arguments = append(arguments, "-S")
	}
	out, err := runInput(ctx, dir, nil, []byte(message), "git", arguments...)
	if err != nil {
		return "", fmt.Errorf("release: commit: %w", err)
	}
	return strings.TrimSpace(out), nil
}

// write tags the release commit and moves the branch, or removes its tags.
func (t *Tagged) write(ctx context.Context, dir, head, merge string) (err error) {
	kind := "-a"
	if key, _ := git(ctx, dir, "config", "user.signingkey"); key != "" {
		kind = "-s"
	}
	var made []string
	defer func() {
		if err == nil {
			return
		}
		for _, tag := range made { // after an interrupt too
			_, failed := git(context.WithoutCancel(ctx), dir, "tag", "-d", tag)
			err = errors.Join(err, failed)
		}
	}()
	for _, tag := range t.Tags {
		if _, err := git(ctx, dir, "tag", kind, "-m", tag, tag, t.Commit); err != nil {
			return fmt.Errorf("release: tag %s: %w", tag, err)
		}
		made = append(made, tag)
	}
	if _, err := git(ctx, dir, "update-ref", "-m", "release: "+t.Version, "refs/heads/"+t.Branch, merge, head); err != nil {
		return fmt.Errorf("release: move branch %s: %w", t.Branch, err)
	}
	return nil
}

// CheckTags checks a released version: that each module has its tag, that all tags are of one
// commit, and that this commit has the result of [Build] for its parent.
func CheckTags(ctx context.Context, dir, version string) error {
	commits, err := tags(ctx, dir)
	if err != nil {
		return err
	}
	released := commits[version]
	if released == "" {
		return fmt.Errorf("release: there is no tag %s", version)
	}
	parent, err := git(ctx, dir, "rev-parse", "--verify", "--quiet", released+"^")
	if err != nil {
		return fmt.Errorf("release: the parent of %s is missing; fetch the whole history: %w", version, err)
	}
	temporary, err := os.MkdirTemp("", "release-")
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // files in the temporary folder
	repository, err := LoadCommit(ctx, dir, parent, filepath.Join(temporary, "commit"))
	if err != nil {
		return err
	}
	if repository.Versions.Version != version {
		return fmt.Errorf("release: %s of tag %s has version %s", versionsFile, version, repository.Versions.Version)
	}
	var errs []error
	for _, m := range repository.Modules {
		if tag := m.Tag(version); m.Released && commits[tag] != released {
			errs = append(errs, fmt.Errorf("release: tag %s is of commit %q, and %s is of %s", tag, commits[tag], version, released))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	built, err := Build(repository, filepath.Join(temporary, "proxy"))
	if err != nil {
		return err
	}
	want, err := built.tree(ctx, dir, parent, filepath.Join(temporary, "index"))
	if err != nil {
		return err
	}
	changes, err := git(ctx, dir, "diff", "--stat", want, released)
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if changes != "" {
		return fmt.Errorf("release: tag %s has other files than make release makes of its parent:\n%s", version, changes)
	}
	return nil
}
