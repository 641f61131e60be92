package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var versionPattern = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// repository is a clone of the project that a version is made in.
type repository struct {
	dir     string
	version string
}

// release makes the commit and the tags, and returns the tags. On an error it leaves
// the working tree as it was.
func (r repository) release(ctx context.Context) ([]string, error) {
	modules, err := r.modules()
	if err != nil {
		return nil, err
	}
	tags := r.tags(modules)
	if err := errors.Join(r.checkVersion(), r.checkClean(ctx), r.checkTags(ctx, tags)); err != nil {
		return nil, err
	}
	if _, err := r.notes(); err != nil {
		return nil, err
	}
	for _, m := range modules {
		err := m.setVersion(ctx, r.version)
		if err == nil {
			_, err = command(ctx, m.path(), "go", "mod", "tidy", "-diff")
		}
		if err != nil {
			_, undone := command(ctx, r.dir, "git", "checkout", "--", ".")
			return nil, errors.Join(err, undone)
		}
	}
	if _, err := command(ctx, r.dir, "git", "commit", "--allow-empty", "-q", "-a", "-m", "Release "+r.version); err != nil {
		return nil, err
	}
	for _, tag := range tags {
		if _, err := command(ctx, r.dir, "git", "tag", "-a", tag, "-m", tag); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// verify reports what differs from the tree of a released version, and returns the
// version's notes.
func (r repository) verify(ctx context.Context) (string, error) {
	modules, err := r.modules()
	if err != nil {
		return "", err
	}
	errs := []error{r.checkVersion()}
	for _, m := range modules {
		errs = append(errs, m.checkVersion(ctx, r.version))
	}
	for _, tag := range r.tags(modules) {
		if _, err := command(ctx, r.dir, "git", "rev-parse", "-q", "--verify", "refs/tags/"+tag); err != nil {
			errs = append(errs, fmt.Errorf("the tag %s is missing; push all tags that make release prints", tag))
		}
	}
	notes, err := r.notes()
	return notes, errors.Join(append(errs, err)...)
}

func (r repository) checkVersion() error {
	if !versionPattern.MatchString(r.version) {
		return fmt.Errorf("the version is %q; give one such as v0.1.0 or v1.2.0-rc.1: make release VERSION=v0.1.0", r.version)
	}
	return nil
}

func (r repository) checkClean(ctx context.Context) error {
	changed, err := command(ctx, r.dir, "git", "status", "--porcelain")
	if err == nil && changed != "" {
		err = fmt.Errorf("the working tree has changes; commit or remove them:\n%s", changed)
	}
	return err
}

func (r repository) checkTags(ctx context.Context, tags []string) error {
	existing, err := command(ctx, r.dir, "git", append([]string{"tag", "--list"}, tags...)...)
	if err == nil && existing != "" {
		err = fmt.Errorf("these tags exist; a version is released once, so take the next one:\n%s", existing)
	}
	return err
}

// tags are those of the root module and of the nested modules that are released.
func (r repository) tags(modules []module) []string {
	tags := []string{r.version}
	for _, m := range modules {
		if m.released() {
			tags = append(tags, m.folder+"/"+r.version)
		}
	}
	return tags
}

// notes are the version's section of the changelog.
func (r repository) notes() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	heading := "## [" + strings.TrimPrefix(r.version, "v") + "] - "
	_, section, found := strings.Cut(string(text), "\n"+heading)
	if !found {
		return "", fmt.Errorf("CHANGELOG.md has no section %q with a date; rename [Unreleased], and begin a new one", strings.TrimSpace(heading))
	}
	_, section, _ = strings.Cut(section, "\n") // the date
	section, _, _ = strings.Cut(section, "\n## ")
	if section = strings.TrimSpace(section); section == "" {
		return "", fmt.Errorf("the section %q of CHANGELOG.md is empty; say what changed", strings.TrimSpace(heading))
	}
	return section, nil
}
