package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/outbox"
)

// bulk is a change of many events, such as replaying them.
type bulk struct {
	verb, past string // such as "replay" and "replayed"
	what       string // such as "dead letters"
	rest       string // the state of the events that were not reached
	batch      int    // how many events are changed at once
	atLeast    bool   // the number of matching events is a lower bound

	dryRun, yes bool
}

func (b *bulk) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "say how many, change nothing")
	cmd.Flags().BoolVar(&b.yes, "yes", false, "do not ask")
}

// result returns the answer of a bulk change. The first field has the past form of the verb as its
// name, and the number of changed events as its value. doubt is how many more events may have been
// changed by a batch whose end is unknown.
func (b *bulk) result(done int, matching int64, interrupted bool, doubt int) map[string]any {
	answer := map[string]any{b.past: done, "matching": matching}
	if b.atLeast {
		answer["or_more"] = true
	}
	if b.dryRun {
		answer["dry_run"] = true
	}
	if interrupted {
		answer["interrupted"] = true
	}
	if doubt > 0 {
		answer["in_doubt"] = doubt
	}
	return answer
}

// do changes the events, after a confirmation. change calls progress after each batch, and returns
// the number of events that it changed, also with an error.
func (a *app) do(ctx context.Context, b *bulk, matching int64, change func(ctx context.Context, progress func(done int)) (int, error)) error {
	if b.dryRun || matching == 0 {
		return a.print(b.result(0, matching, false, 0), func(t *table) {
			if b.dryRun {
				t.row(fmt.Sprintf("would %s %s %s", b.verb, b.count(matching), b.what))
			} else {
				t.row(fmt.Sprintf("there are no such %s, so nothing was changed", b.what))
			}
		})
	}
	if err := a.confirm(ctx, b, matching); err != nil {
		return err
	}
	total := matching
	if b.atLeast {
		total = -1 // a bar without an end
	}
	bar := a.progressBar(b.verb, total)
	working, w := gently(ctx, bar.set)
	done, err := change(working, w.progress)
	bar.end()
	err = a.warnUnrecorded(err)
	interrupted := err != nil && ctx.Err() != nil && (w.cut.Load() || errors.Is(err, context.Canceled))
	doubt := 0
	if interrupted && w.inDoubt(err) {
		doubt = b.batch
	}
	if err != nil && !interrupted {
		return fmt.Errorf("after it %s %d of %s %s: %w", b.past, done, b.count(matching), b.what, err)
	}
	if err := a.print(b.result(done, matching, interrupted, doubt), func(t *table) {
		if !interrupted {
			what := b.what
			if done == 1 {
				what = strings.TrimSuffix(what, "s")
			}
			t.row(fmt.Sprintf("%s %d %s", b.past, done, what))
		}
	}); err != nil {
		return err
	}
	if interrupted {
		return b.interruption(done, matching, doubt)
	}
	return nil
}

// count returns the number of matching events as a text.
func (b *bulk) count(matching int64) string {
	if b.atLeast {
		return fmt.Sprintf("%d or more", matching)
	}
	return fmt.Sprint(matching)
}

// interruption reports how far a change came that a signal ended.
func (b *bulk) interruption(done int, matching int64, doubt int) error {
	rest := b.rest
	if doubt > 0 {
		rest = fmt.Sprintf("the last batch did not end within %s, so up to %d more may be %s", stopPatience, doubt, b.past)
	}
	return fmt.Errorf("%w after it %s %d of %s %s; %s; to go on, run the command again", errInterrupted, b.past, done, b.count(matching), b.what, rest)
}

// errInterrupted is the error of a command that a signal ended.
var errInterrupted error = interrupted{}

type interrupted struct{}

func (interrupted) Error() string        { return "interrupted" }
func (interrupted) Is(target error) bool { return target == context.Canceled }

func (a *app) deadReplay() *cobra.Command {
	return a.deadBulk("replay", "Delivers dead letters again",
		`Delivers dead letters again: those whose ids are given, or all that the flags choose. They
get all their attempts again. A process that delivers finds them when it polls.

Letters that die again in the meantime are not replayed a second time.`,
		bulk{verb: "replay", past: "replayed", what: "dead letters", rest: "the others are still dead"},
		(*outbox.DeadLetters).Replay, (*outbox.DeadLetters).ReplayAll)
}

func (a *app) deadDelete() *cobra.Command {
	return a.deadBulk("delete", "Deletes dead letters",
		`Deletes dead letters: those whose ids are given, or all that the flags choose. They are
gone for good.`,
		bulk{verb: "delete", past: "deleted", what: "dead letters", rest: "the others are still there"},
		(*outbox.DeadLetters).Delete, (*outbox.DeadLetters).DeleteAll)
}

func (a *app) deadBulk(use, short, long string, b bulk,
	one func(*outbox.DeadLetters, context.Context, string) error,
	all func(*outbox.DeadLetters, context.Context, outbox.DeadFilter, int, ...outbox.BulkOption) (int, error),
) *cobra.Command {
	var f filter
	var group string
	var everything bool
	var batch int
	cmd := &cobra.Command{
		Use: use + " [EVENT_ID ...]", Short: short, Long: long,
		Example: "  outbox dead " + use + " --group j1te3m6bjjnkre61 --dry-run\n  outbox dead " + use + " --event-type OrderPlaced --since 2h --yes",
		RunE: a.changes(func(ctx context.Context, c *client, ids []string) error {
			chosen, err := f.dead(group, c.now())
			if err != nil {
				return err
			}
			if err := checkCount("--batch", batch, outbox.MaxBatch); err != nil {
				return err
			}
			chosen.EventIDs, err = chosenIDs(ids, everything, !f.isEmpty() || group != "")
			if err != nil {
				return err
			}
			matching, err := c.ob.DeadLetters().Count(ctx, chosen)
			if err != nil {
				return err
			}
			b.batch = 1
			if len(ids) > 0 {
				return a.named(ctx, &b, c.ob.DeadLetters(), ids, matching, one)
			}
			b.batch = batch
			return a.do(ctx, &b, matching, func(ctx context.Context, progress func(int)) (int, error) {
				return all(c.ob.DeadLetters(), ctx, chosen, batch, outbox.OnProgress(progress))
			})
		}),
	}
	f.register(cmd, "only those that died")
	registerGroup(cmd, &group)
	b.register(cmd)
	cmd.Flags().BoolVar(&everything, "all", false, "all dead letters")
	cmd.Flags().IntVar(&batch, "batch", 500, "how many are changed in one transaction")
	return cmd
}

// chosenIDs checks that the letters are chosen in exactly one way, so that a forgotten flag does
// not choose all letters.
func chosenIDs(ids []string, everything, filtered bool) ([]string, error) {
	ways := 0
	for _, given := range []bool{len(ids) > 0, everything, filtered} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, &usageError{"the choice of dead letters", "must be one of: event ids; flags such as --group or --event-type; --all"}
	}
	for _, id := range ids {
		if _, err := eventID(id); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// named changes the letters of these ids, and reports how many of the ids have no dead letter.
func (a *app) named(ctx context.Context, b *bulk, dead *outbox.DeadLetters, ids []string, matching int64, one func(*outbox.DeadLetters, context.Context, string) error) error {
	var absent int
	var unrecorded error // of the last change without an entry in the audit log
	var taken outbox.KeyTakenError
	err := a.do(ctx, b, matching, func(ctx context.Context, progress func(int)) (done int, err error) {
		for _, id := range ids {
			switch err := one(dead, ctx, id); {
			case err == nil:
				done++
				progress(done)
			case errors.Is(err, outbox.ErrNotRecorded):
				unrecorded = err
				done++
				progress(done)
			case exitCode(err) == exitNotFound:
				absent++
			case errors.Is(err, outbox.ErrKeyTaken):
				if taken.Letters++; taken.Letters == 1 {
					taken.EventID = id
				}
			default:
				return done, err
			}
		}
		if taken.Letters > 0 {
			return done, &taken
		}
		return done, unrecorded
	})
	if b.dryRun || matching == 0 {
		absent = len(ids) - int(matching)
	}
	if err == nil && absent > 0 {
		err = missing(fmt.Sprintf("%d of the %d event ids are not those of dead letters", absent, len(ids)))
	}
	return err
}
