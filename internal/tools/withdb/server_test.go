package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testVar = "OUTBOX_TEST_WITHDB"

// fake is a private server made of a folder and a flag.
type fake struct {
	dir           string
	up            *bool
	errs          []error // of one start each
	dies          int     // this many starts end at once
	starts, stops int
}

func (f *fake) home() string       { return f.dir }
func (f *fake) packages() []string { return []string{"fakedb"} }
func (f *fake) running() bool      { return *f.up }

func (f *fake) start(context.Context) (string, <-chan struct{}, error) {
	f.starts++
	ended := make(chan struct{})
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		if err != nil {
			return "", nil, err
		}
	}
	if f.starts <= f.dies {
		close(ended)
	}
	*f.up = true
	return "private", ended, os.MkdirAll(f.dir, 0o755)
}

func (f *fake) stop() error {
	f.stops++
	*f.up = false
	return nil
}

// newFake is a server of which only the private one answers, and a list of what
// was tried when that did not start.
func newFake(t *testing.T, dir string, up *bool) (s *server, f *fake, tried *[]string) {
	t.Helper()
	t.Setenv(testVar, "")
	t.Setenv("OUTBOX_TEST_PRIVATE", "")
	f, tried = &fake{dir: filepath.Join(dir, ".db", "fake"), up: up}, new([]string)
	return &server{
		name: "Fake", variable: testVar, driver: "fake", defaultDSN: "default", private: f,
		dsn: func() string { return os.Getenv(testVar) },
		ping: func(_, dsn string) error {
			if dsn == "private" && *up {
				return nil
			}
			return errors.New("nobody at " + dsn)
		},
		install: func(_ context.Context, packages []string) error {
			*tried = append(*tried, "install "+packages[0])
			return nil
		},
		compose: func(context.Context) (string, error) {
			*tried = append(*tried, "compose")
			return "", errors.New("no docker")
		},
	}, f, tried
}

func TestWhereAServerIsTakenFrom(t *testing.T) {
	for name, tc := range map[string]struct {
		given, private, answers string
		errs                    []error
		where, dsn, failure     string
		tried                   []string
	}{
		"given":               {given: "g", answers: "g", where: "given by " + testVar, dsn: "g"},
		"given wrongly":       {given: "g", failure: testVar + " is set, but: nobody at g", dsn: "g"},
		"default port":        {answers: "default", where: "answering on its default local port"},
		"private":             {where: "a private server in .db", dsn: "private"},
		"private, as asked":   {private: "1", answers: "default", where: "a private server in .db", dsn: "private"},
		"newly installed":     {errs: []error{errNotInstalled}, tried: []string{"install fakedb"}, where: "a private server in .db, of newly installed packages", dsn: "private"},
		"installed, but sick": {errs: []error{errors.New("disk full")}, tried: []string{"compose"}, failure: "disk full\nno docker"},
	} {
		t.Run(name, func(t *testing.T) {
			s, f, tried := newFake(t, t.TempDir(), new(bool))
			f.errs = tc.errs
			t.Setenv(testVar, tc.given)
			t.Setenv("OUTBOX_TEST_PRIVATE", tc.private)
			if ping := s.ping; tc.answers != "" {
				s.ping = func(driver, dsn string) error {
					if dsn == tc.answers {
						return nil
					}
					return ping(driver, dsn)
				}
			}
			where, err := s.ensure(t.Context())
			if tc.failure == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, tc.failure)
			}
			require.Equal(t, tc.where, where)
			require.Equal(t, tc.dsn, os.Getenv(testVar))
			require.Equal(t, tc.tried, append([]string(nil), *tried...))
		})
	}
}

func TestASignalEndsTheSearch(t *testing.T) {
	s, f, tried := newFake(t, t.TempDir(), new(bool))
	ctx, cancel := context.WithCancelCause(t.Context())
	s.ping = func(string, string) error {
		if f.starts > 0 {
			cancel(interrupted{syscall.SIGINT})
		}
		return errors.New("not yet")
	}
	_, err := s.ensure(ctx)
	require.Equal(t, interrupted{syscall.SIGINT}, err)
	require.Empty(t, *tried, "nothing is installed after an interrupt")
	require.False(t, f.running())
}

func TestAServerThatEndsIsStartedAgain(t *testing.T) {
	s, f, _ := newFake(t, t.TempDir(), new(bool))
	f.dies = 2
	_, err := s.ensure(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, f.starts)

	s, f, _ = newFake(t, t.TempDir(), new(bool))
	f.dies = 9
	begin := time.Now()
	_, err = s.ensure(t.Context())
	require.ErrorIs(t, err, errEnded)
	require.Equal(t, 3, f.starts)
	require.Less(t, time.Since(begin), 30*time.Second, "the tool does not wait for a server that has ended")
}

func TestTheLastRunStopsTheServer(t *testing.T) {
	dir, up := t.TempDir(), new(bool)
	first, f1, _ := newFake(t, dir, up)
	second, f2, _ := newFake(t, dir, up)
	ensure(t, first)
	ensure(t, second)
	require.Equal(t, 0, f2.starts, "the second run joins the first")
	require.ErrorIs(t, second.remove(t.Context()), errInUse)

	require.NoError(t, first.leave(false))
	require.True(t, *up)
	require.NoError(t, second.leave(false))
	require.False(t, *up)
	require.Equal(t, 0, f1.stops)
	require.Equal(t, 1, f2.stops)
}

func TestAKeptServerStaysUntilItIsRemoved(t *testing.T) {
	dir, up := t.TempDir(), new(bool)
	keeper, _, _ := newFake(t, dir, up)
	ensure(t, keeper)
	require.NoError(t, keeper.leave(true))

	next, f, _ := newFake(t, dir, up)
	ensure(t, next)
	require.NoError(t, next.leave(false))
	require.Equal(t, 0, f.starts)
	require.True(t, *up)

	require.NoError(t, next.remove(t.Context()))
	require.False(t, *up)
	left, err := os.ReadDir(filepath.Dir(f.dir))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestWhatIsKeptIsForgottenWithTheServer(t *testing.T) {
	dir, up := t.TempDir(), new(bool)
	keeper, _, _ := newFake(t, dir, up)
	ensure(t, keeper)
	require.NoError(t, keeper.leave(true))
	*up = false // a reboot

	next, f, _ := newFake(t, dir, up)
	ensure(t, next)
	require.Equal(t, 1, f.starts)
	require.NoError(t, next.leave(false))
	require.False(t, *up)
}

func ensure(t *testing.T, s *server) {
	t.Helper()
	t.Setenv(testVar, "")
	_, err := s.ensure(t.Context())
	require.NoError(t, err)
}
