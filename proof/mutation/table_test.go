package mutation_test

import "github.com/outboxkit/outbox-go/proof/checker"

// mutation breaks the outbox: in file, old becomes new.
type mutation struct {
	// what is broken, for the table in docs/reliability/MUTATIONS.md.
	what     string
	file     string
	old, new string
	// play is the scenario that runs the broken copy, and rule the one that rejects it.
	play scenario
	rule checker.Rule
}

var mutations = []mutation{
	{
		"COMMIT reports success for a transaction that was rolled back", "adapters/sqltx/transaction.go",
		"err := t.inner.Commit()", "err := t.inner.Rollback()", alone, checker.RuleAcknowledged,
	},
	{
		"the row is inserted beside the transaction", "outbox/writer.go",
		"w.store.InsertOnce(ctx, tx, p.envs", "w.store.InsertOnce(ctx, w.hot.completer.db, p.envs", alone, checker.RuleAtomic,
	},
	{
		"a delivered row is deleted although it is to be kept", "outbox/config.go",
		"ListenerTimeout: d.opts.ListenerTimeout, OnDone: Keep}", "ListenerTimeout: d.opts.ListenerTimeout, OnDone: Delete}", alone, checker.RuleAtomic,
	},
	{
		"a rollback puts the events into the hot queue", "adapters/sqltx/transaction.go",
		"t.end(rollbackEnd(err, context.Cause(t.ctx)))", "t.end(txscope.Committed, nil)", alone, checker.RuleRolledBack,
	},
	{
		"a savepoint's rollback is not followed", "internal/txscope/scope.go",
		"s.callbacks.add(ctx, s.hooks.RollbackTo(name), false)", "_ = ctx", alone, checker.RuleRolledBack,
	},
	{
		"events enter the hot queue when they are written", "outbox/writer.go",
		"return scope.AtCommit(func() { w.committed(p) })", "w.committed(p)\n\t\treturn nil", alone, checker.RuleAfterCommit,
	},
	{
		"the outcome of a failed delivery is lost", "outbox/worker.go",
		"\td.logRetry(dl)\n\tfor _, row", "\tif dl.outcome == OutcomeRetry {\n\t\treturn\n\t}\n\tfor _, row", alone, checker.RuleEnded,
	},
	{
		"the poller does not read rows that failed", "outbox/sqlstore/read.go",
		`return []string{"status IN (0, 2)"}`, `return []string{"status IN (0)"}`, alone, checker.RuleEnded,
	},
	{
		"expired leases are not taken over", "outbox/sqlstore/claim.go",
		"return q.free(c.LeaseDuration)", "return q.fresh()", killedInTurn, checker.RuleEnded,
	},
	{
		"ranges of a process that died are not taken over", "outbox/ranges.go",
		"return r.expired() >= 0", "return false", killed, checker.RuleEnded,
	},
	{
		"an event without attempts left is deleted instead of kept as DEAD", "outbox/result.go",
		"case rules.isLast(attempts):\n\t\treturn OutcomeDead", "case rules.isLast(attempts):\n\t\treturn OutcomeDelete", deleting, checker.RuleDelivered,
	},
	{
		"an error counts as a success", "outbox/result.go",
		"return OutcomeRetry", "return OutcomeDone", alone, checker.RuleDone,
	},
	{
		"DONE is stored before the listener runs", "outbox/worker.go",
		"\t\t\td.deliver(d.listenerCtx, next)",
		"\t\t\t_, _ = d.completer.store.Mark(d.listenerCtx, d.completer.db, OutcomeDone, []Mark{next.mark()})\n\t\t\td.deliver(d.listenerCtx, next)",
		alone, checker.RuleDone,
	},
	{
		"an event is DEAD an attempt too early", "outbox/result.go",
		"case rules.isLast(attempts):", "case rules.isLast(attempts + 1):", alone, checker.RuleDead,
	},
	{
		"a DEAD row has no reason", "outbox/deliver.go",
		"= OutcomeDead, c.err, c.panicked, errorText(c.text)", `= OutcomeDead, c.err, c.panicked, ""`, alone, checker.RuleDead,
	},
	{
		"attempts are not counted", "outbox/sqlstore/mark.go",
		`q.add("status = 2, ", unlock).attempts(marks).add(`, `q.add("status = 2, ", unlock).add(`, alone, checker.RuleAttempts,
	},
	{
		"the inbox does not look whether it has the message", "inbox/inbox.go",
		"if n == 0 {", "if n < 0 {", alone, checker.RuleOnce,
	},
	{
		"Complete marks whatever the row is", "outbox/sqlstore/mark.go",
		`.arg(mark.EventID).still("status IN (0, 2)").fenced(&mark)`,
		".arg(mark.EventID)", stopped, checker.RuleOnce,
	},
	{
		"a split leaves out a listener that failed", "outbox/sqlstore/split.go",
		"range splits[i].Rows {", "range splits[i].Rows[1:] {", alone, checker.RuleSubscriptions,
	},
	{
		"the failure of a listener repeats all", "outbox/listeners.go",
		"&& c.listeners == a.err }", "&& false }", alone, checker.RuleSubscriptions,
	},
	{
		"the poller's copy of an event in hand is delivered", "outbox/tracker.go",
		"held != nil && held.covers(d) {", "held != nil && d.lease != \"\" && held.covers(d) {", alone, checker.RuleTwice,
	},
	{
		"a row is written without the lease of the hot path", "outbox/commit.go",
		"lease = d.leases.names.Next()", "lease = \"\"", two, checker.RuleTwice,
	},
	{
		"a claim takes rows that others have leased", "outbox/sqlstore/claim.go",
		"return q.free(c.LeaseDuration)", "return q", inTurn, checker.RuleTwice,
	},
	{
		"a process takes a range although another process set the list meanwhile", "outbox/sqlstore/control.go",
		`q.add(" AND owner = ").arg(was)`, `q.add(" AND owner IS NOT NULL")`, polled, checker.RuleTwice,
	},
	{
		"leases are not renewed", "outbox/leases.go",
		"err := t.store.Renew(ctx, t.db, renewed)", "err := ctx.Err()", slow, checker.RuleExplained,
	},
	{
		"a run goes on behind a failure", "outbox/worker.go",
		"if !dl.outcome.delivered() || !d.mayFollow(next) {", "if !d.mayFollow(next) {", byKey, checker.RuleOrder,
	},
	{
		"in order, DEAD is stored after later outcomes", "outbox/worker.go",
		"\tif !d.completer.commit.Submit(dl) {",
		"\tif d.inOrder && dl.outcome == OutcomeDead {\n\t\ttime.AfterFunc(2*time.Second, func() { d.completer.commit.Submit(dl) })\n\t\treturn\n\t}\n\tif !d.completer.commit.Submit(dl) {",
		inOrder, checker.RuleOrder,
	},
	{
		"the events of a run are delivered at once", "outbox/dispatcher.go",
		"\tlink(run[:n])\n", "\tfor i := 1; i < n; i++ {\n\t\td.queues.Cold.Push(&run[i])\n\t}\n", byKey, checker.RuleOneAtATime,
	},
	{
		"a standby delivers", "outbox/internal/hold/hold.go",
		"if owner != h.owner {", "if owner == \"\" {", standby, checker.RuleOneProcess,
	},
	{
		"a replay keeps the attempts", "outbox/sqlstore/dead.go",
		`", attempts = 0, available_at = "`, `", available_at = "`, replayed, checker.RuleOperators,
	},
	{
		"Close drops the last outcomes and does not count them", "outbox/completer.go",
		"\tgroup, again, refused = c.inTurn(group)\n", "\tgroup, again, refused = c.inTurn(group)\n\tif isClosed(c.engine.(*dispatcher).quit) {\n\t\tc.pending.Add(-int64(len(group)))\n\t\treturn nil, nil, nil\n\t}\n", closing, checker.RuleClosed,
	},
	{
		"events that have expired are delivered", "outbox/deliver.go",
		"return rules.Expires > 0 &&", "return false &&", expiring, checker.RuleExpires,
	},
	{
		"events expire after half of their time", "outbox/deliver.go",
		"Sub(dl.env.OccurredAt) > rules.Expires", "Sub(dl.env.OccurredAt) > rules.Expires/2", expiring, checker.RuleExpires,
	},
	{
		"endless attempts have an end", "outbox/rules.go",
		"return r.MaxAttempts != Endless && attempts+1 >= r.MaxAttempts", "return attempts+1 >= max(r.MaxAttempts, 2)", expiring, checker.RuleDead,
	},
	{
		"an event without a listener dies by default", "outbox/result.go",
		"if opts.OnUnroutable == KillUnroutable {", "if opts.OnUnroutable != KillUnroutable {", deaf, checker.RuleHeard,
	},
	{
		"a deferral counts as an attempt", "outbox/sqlstore/mark.go",
		`q.add("status = 0, ", unlock, ", available_at = ")`, `q.add("status = 0, attempts = attempts + 1, ", unlock, ", available_at = ")`, deaf, checker.RuleCounted,
	},
	{
		"PauseFor counts as a failure", "outbox/result.go",
		"case c.decides(OutcomeDead), c.decides(OutcomeDeferred):", "case c.decides(OutcomeDead), c.decides(OutcomeDeferred) && !c.decided.pauses:", pausing, checker.RuleCounted,
	},
	{
		"a pause is read, and deliveries go on", "outbox/pause.go",
		"\t\tnext.kinds[pause.Kind] = known\n", "\t\t_ = known\n", pausing, checker.RulePaused,
	},
	{
		"a process sees no shares of the others", "outbox/internal/shares/keeper.go",
		"\tl := was.at(row.Now)\n", "\tl := was.at(row.Now.Add(time.Hour))\n", bounded, checker.RuleBounded,
	},
	{
		"a process takes the whole bound of a key", "outbox/flow.go",
		"own := l.share.Limits().Of(max(l.share.Parts(), 1))", "own := l.share.Limits()", keyBounded, checker.RuleBounded,
	},
	{
		"a Drain reads what became due after it began", "outbox/poller_drain.go",
		"\t\treturn d.due\n", "\t\treturn storedTime(p.clock.Now())\n", drainingAll, checker.RuleDrain,
	},
	{
		"a Drain takes more events than asked for", "outbox/bound.go",
		"return min(limit, d.n-int(d.taken.Load()-d.back.Load()))", "return min(limit, d.n)", draining, checker.RuleDrain,
	},
	{
		"a Drain does not count a success", "outbox/bound.go",
		"\td.done.Add(1)\n", "", draining, checker.RuleDrain,
	},
	{
		"an event is written without the unique key", "outbox/sqlstore/insert_once.go",
		"\t\tc.key = true\n", "", unique, checker.RuleUnique,
	},
	{
		"a write is kept out by an event that has ended", "outbox/sqlstore/insert_once.go",
		`.arg(env.UniqueKey).add(" AND status IN (0, 2)")`, `.arg(env.UniqueKey).add(" ORDER BY created_at")`, unique, checker.RuleKeptOut,
	},
	{
		"a write that was kept out returns the id of its own event", "outbox/sqlstore/insert_once.go",
		"\t*id = found[0]\n", "", unique, checker.RuleDelivered,
	},
	{
		"an event that was kept out enters the hot queue", "outbox/writer.go",
		"if id == p.envs[i].EventID {", "if id != \"\" {", unique, checker.RuleRolledBack,
	},
	{
		"a Cancel ignores leases", "outbox/sqlstore/takeback.go",
		`const waits = "locked_by IS NULL AND locked_at IS NULL AND available_at > created_at"`, `const waits = "available_at > created_at"`,
		takingBack, checker.RuleTakenBack,
	},
	{
		"postponed rows are delivered without a lease", "outbox/poller_claim.go",
		"	ids := p.postponed(f.ds)\n	if ids == nil {\n", "	ids := p.postponed(f.ds)\n	if ids != nil || early {\n", takingBackAlone, checker.RuleTakenBack,
	},
	{
		"an event in hand counts as delivered", "outbox/sqlstore/takeback.go",
		`inState("status IN (0, 2, 3)")`, `inState("status IN (2, 3)")`, takingBack, checker.RuleTakenBack,
	},
	{
		"a Cancel leaves the row", "outbox/sqlstore/takeback.go",
		`q.add("DELETE FROM ").table(s)`, `q.add("UPDATE ").table(s).add(" SET attempts = attempts")`, takingBack, checker.RuleCancelled,
	},
	{
		"a Cancel is done beside the transaction", "outbox/takeback.go",
		"	n, err := w.store.TakeBack(ctx, scope, which, c)", "	n, err := w.store.TakeBack(ctx, w.hot.completer.db, which, c)", takingBack, checker.RuleDelivered,
	},
	{
		"a Reschedule sets no due time", "outbox/sqlstore/takeback.go",
		`q.add("available_at = CASE WHEN created_at < ").time(c.AvailableAt).add(" THEN ").time(c.AvailableAt)`,
		`q.add("available_at = CASE WHEN created_at < ").time(c.AvailableAt).add(" THEN available_at")`, takingBack, checker.RuleDue,
	},
	{
		"a Replace sets the due time only", "outbox/sqlstore/takeback.go",
		`q.add("payload = ").arg(c.Content.Payload.String()).add(", headers = ").arg(nullable(headers))`,
		`_ = nullable(headers)
	q.add("payload = payload, headers = headers")`, takingBack, checker.RuleLatest,
	},
	{
		"KeepLatest replaces an event in hand", "outbox/sqlstore/insert_once.go",
		`return q.ofKey(env).add(" AND ", waits) }`, `return q.ofKey(env).add(" AND available_at > created_at") }`, latest, checker.RuleTakenBack,
	},
	{
		"KeepLatest keeps the first state", "outbox/sqlstore/insert_once.go",
		"		if !env.KeepLatest {\n			return w.s.holder", "		if env.KeepLatest {\n			return w.s.holder", latest, checker.RuleLatest,
	},
	{
		"the key is stored after the COMMIT, in a transaction of its own", "idempotency/attempt.go",
		"\terr := a.tx.Commit()\n",
		"\t_, _ = a.scope.ExecContext(a.ctx, \"DELETE FROM idempotency_key WHERE key_hash = $1\", a.hash[:])\n\terr := a.tx.Commit()\n" +
			"\tif err == nil {\n\t\t_, _ = a.keys.record(a.ctx, a.keys.db, a.hash[:], a.fingerprint)\n\t\t_ = a.keys.put(a.ctx, a.keys.db, a.hash[:], &answer)\n\t}\n",
		requests, checker.RuleRequestOnce,
	},
	{
		"the answer is stored without the rows of the handler", "idempotency/attempt.go",
		"\terr := a.tx.Commit()\n",
		"\terr := a.tx.Rollback()\n\t_, _ = a.keys.record(a.ctx, a.keys.db, a.hash[:], a.fingerprint)\n\t_ = a.keys.put(a.ctx, a.keys.db, a.hash[:], &answer)\n",
		requests, checker.RuleRequestOnce,
	},
	{
		"a repeated answer is not marked", "httptx/idempotency.go",
		"\theader.Set(ReplayedHeader, \"true\")\n", "", requests, checker.RuleRequestAnswer,
	},
	{
		"the body of a repeated answer is empty", "httptx/idempotency.go",
		"_, _ = w.Write(answer.Body)", "_, _ = w.Write(nil)", requests, checker.RuleRequestAnswer,
	},
	{
		"the fingerprint of a request is not compared", "idempotency/attempt.go",
		"case !bytes.Equal(r.fingerprint, a.fingerprint):", "case false:", requests, checker.RuleRequestOther,
	},
	{
		"a rollback keeps the key", "idempotency/attempt.go",
		"\treturn a.tx.Rollback()\n", "\terr := a.tx.Rollback()\n\t_, _ = a.keys.record(context.WithoutCancel(a.ctx), a.keys.db, a.hash[:], a.fingerprint)\n\treturn err\n",
		requests, checker.RuleRequestEnd,
	},
	{
		"a COMMIT without an answer counts as rolled back", "idempotency/attempt.go",
		"return a.settle(&answer, err)", `return fmt.Errorf("rolled back: %s", err.Error())`, unanswered, checker.RuleAcknowledged,
	},
	{
		"a COMMIT without an answer counts as done", "idempotency/attempt.go",
		"return a.settle(&answer, err)", "return nil", unsent, checker.RuleRequestAnswer,
	},
}
