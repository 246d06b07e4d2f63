// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package classify

import "strings"

// The tables below are the vocabulary of the rules, one group a purpose. They
// hold single words in their basic form; inflections are reduced by stem.go.
// A missing verb with effects costs little: a name without evidence is
// Reversible. A wrong read verb lets effects through: keep that list short.

// set is a list of words to look up.
type set map[string]bool

func words(groups ...string) set {
	s := set{}
	for _, group := range groups {
		for word := range strings.FieldsSeq(group) {
			s[word] = true
		}
	}
	return s
}

// readVerbs are proof of a tool without effects, unless a verb with effects is in the name too.
var readVerbs = words(
	// Fetching what is there.
	`get gets list lists ls read reads fetch retrieve describe show find lookup`,
	// Reading from key-value stores.
	`hget hgetall hexists mget lrange llen smembers zrange zscore xrange dbsize`,
	// Looking closer, and judging what was given.
	`inspect explain analyze analyse compare diff summarize validate discover detect estimate calculate introspect`,
	`search query count suggest recommend diagnose geocode autocomplete`,
)

// readNouns are read verbs that are as often nouns (a search can be saved, a
// view created): proof only at the start of a name, at its end, or right behind
// the prefix that a server's tools share.
var readNouns = words(
	`view check lint scan preview browse extract map parse sample wait ping whoami blame grep peek screenshot`,
	`rank rerank forecast audit`,
)

// neverNouns are the read verbs that leave a homograph before them no choice
// but to be a noun: order_get, while archive_list may be a verb and its object.
var neverNouns = words(`get gets fetch retrieve describe show find inspect lookup geocode`)

// facts are nouns that name what a tool tells; at the end of a name without any verb they are proof.
var facts = words(
	`info information status stats statistics schema schemas details detail summary overview health version`,
	`versions usage balance balances history logs log metrics definitions docs documentation help helper guide`,
	`instructions capabilities insights quota quotas readme changelog leaderboard price prices pricing`,
	`stat reflog metadata uptime availability weather types size sizes indexes indices tree transcript results costs`,
	`coverage directions elevation trends cost timezone timezones`,
)

// irreversible verbs do what cannot be undone, whatever their object.
var irreversible = words(
	// Destroying.
	`delete destroy erase wipe purge truncate obliterate annihilate nuke shred expunge drop del rm rmdir unlink`,
	`terminate kill teardown cleanup uninstall decommission deprovision prune vacuum discard empty evict flush`,
	`hdel srem zrem xdel lpop rpop flushdb flushall forget forfeit liquidate slash demolish eradicate raze zap`,
	// Taking back what others hold.
	`revoke void invalidate expire annul nullify rescind repeal`,
	// Sending: what was read cannot be unread.
	`send resend broadcast announce notify dm tweet retweet toot blast reply message`,
	// Paying and trading.
	`pay repay prepay refund withdraw buy sell purchase donate spend disburse reimburse remit wire stake unstake`,
	`swap mint bid redeem charge checkout settle outbid wager gamble`,
	// Free code and commands.
	`exec execute eval evaluate invoke shell sudo spawn inject`,
	// Overwriting and joining history.
	`overwrite merge rebase squash restore reset wipeout clobber upgrade downgrade put migrate finalize`,
	`sign cosign burn`,
)

// irreversibleNouns are those of the verbs above and below that are nouns as often: after
// another verb they name its object (the merge of a request to merge, a list of refunds).
var irreversibleNouns = words(
	`merge refund charge checkout message reply email swap bid shell restore purchase reset tweet wire stake`,
	`upgrade downgrade transfer call trade sms mail void burn mint dm broadcast empty slash sign buy sell`,
	`spend withdraw redeem vacuum eval blast zap`,
)

// weighty are verbs that are irreversible but for the objects that objects.go excepts.
var weighty = words(`call trade transfer email mail sms push post forward clear remove`)

// reversible verbs have effects that can be undone.
var reversible = words(
	// Making and keeping.
	`create add insert append prepend upsert make new generate compose write save store persist`,
	`initiate register onboard provision allocate reserve enroll init initialize setup bootstrap prepare scaffold`,
	`install configure populate seed instantiate spin open reopen`,
	// Changing.
	`set unset update edit modify change alter adjust rename replace rewrite patch amend revise correct fix`,
	`convert transform transcode resize crop rotate recolor reformat normalize enrich annotate refactor extend`,
	`increase decrease increment decrement bump raise lower scale autoscale tune optimize toggle switch flip`,
	`override upscale move reorder arrange align distribute group`,
	`ungroup duplicate clone copy fork split combine attach detach bind unbind mount unmount`,
	// Taking away in a way that can be put back.
	`remove clear archive unarchive trash untrash undelete hide unhide exclude unassign delist retire shelve withhold`,
	// Relations and rights.
	`assign reassign delegate invite uninvite join leave follow unfollow subscribe unsubscribe grant deny permit`,
	`authorize authorise deauthorize ban unban block unblock mute unmute kick promote demote connect disconnect`,
	`reconnect associate disassociate dissociate link relate untag unlabel star unstar pin unpin like unlike vote`,
	`upvote downvote react favorite unfavorite bookmark rate flag unflag endorse share unshare transfer`,
	// Starting, stopping, holding.
	`start stop restart reboot run rerun launch relaunch trigger retrigger fire schedule reschedule unschedule`,
	`enqueue dequeue queue requeue pause resume suspend unsuspend halt abort cancel retry replay play shutdown`,
	`boot wake sleep hibernate freeze unfreeze lock unlock enable disable activate deactivate reactivate deploy`,
	`redeploy undeploy rollout rollback revert undo redo recover drain cordon uncordon taint untaint expose`,
	`unexpose snooze unsnooze silence unsilence acknowledge ack escalate resolve unresolve close dismiss accept`,
	`reject decline approve disapprove unapprove confirm submit complete finish reassess arm disarm isolate`,
	`quarantine failover failback kickoff warm perform process apply commit dispatch`,
	// Bringing in and out.
	`import export upload download ingest load unload sync synchronise synchronize mirror replicate backup pull`,
	`push crawl scrape publish unpublish release stage unstage stash cherry rebuild build compile render print`,
	`record capture index reindex refresh reload recompute recalculate regenerate cache warmup`,
	`renew lease claim unclaim borrow checkin clockin clockout`,
	// Acting on a screen or a device.
	`click tap press type fill hover drag swipe scroll navigate goto select deselect focus blur uncheck`,
	`keypress keydown keyup paste cut draw paint dim brighten eject dock undock pair unpair call dial hang`,
	`login logout signin signout signup authenticate impersonate enter exit quit minimize maximize`,
	`highlight unhighlight zoom turn ring mow`,
	// Managing: the schema says what.
	`manage handle control administer maintain moderate triage mark unmark post request issue report file log`,
	`email mail sms order comment label tag note review test respond interact answer`,
	`verify track untrack clean trade train finetune retrain forward redirect route reroute`,
	`contact book rebook unreserve hire nominate draft unplug retitle poke`,
	`branch snapshot form sanitize redact mask encrypt decrypt zip unzip compress decompress`,
	`chmod chown mkdir touch symlink mv cp tee`,
	// Home, shop, studio and game.
	`place fulfill ship deliver remind nudge lend rent bridge wrap unwrap harvest vest hedge reconcile categorize`,
	`shuffle repeat stream cast seek rewind skip extrude bake animate actuate dispense heat cool water feed unpark`,
	`despawn teleport craft dig attack equip calibrate flash format partition`,
	`scrub anonymize obfuscate collapse expand shrink grow flatten inflate emulate throttle simulate`,
	`intercept spoof hijack tamper elevate whitelist blacklist allowlist denylist lockdown offboard`,
	// Other work that leaves something changed.
	`accelerate accrue adopt advance amplify assemble attest backfill boost bypass certify chop clamp`,
	`coalesce collect compact compensate concatenate consolidate consume contribute convene coordinate curate`,
	`customize decorate dedupe deduplicate defer deflate defragment delay deprecate deregister detonate divert`,
	`embed emit encode enforce engage engrave enlarge enlist entitle evacuate evolve exempt fold forge fuse`,
	`harden hash hoist hydrate ignite ignore implant impose incorporate incubate inform infuse inhibit instruct`,
	`integrate interrupt introduce irrigate jettison levy lift liberate manipulate materialize mend mitigate`,
	`mobilize morph multiply mutate neutralize notarize offload operate orchestrate overhaul pack`,
	`penalize permute pivot polish pour prefetch preload prioritize procure produce prohibit propagate`,
	`propose publicize quantize randomize rectify recruit refine regulate reimage reinforce relinquish relocate`,
	`remediate repair reposition repossess repurpose requisition reseed reshape restrict resurrect retain`,
	`retarget retract reverse revive scramble seal secure seize sequester serve sever shift shut slice`,
	`smooth solder splice squeeze stabilize standardize steer sterilize stitch strengthen stretch strip substitute`,
	`suppress surrender synthesize tear thaw tighten tint topup transmit transplant trim tunnel unwind uproot veto`,
	`waive warn weaken weld widen yank zero`,
	// Writing to key-value stores.
	`hset lpush rpush sadd zadd xadd mset setex incr decr`,
)

// nouns are words of the table above that are nouns as often as verbs: after a verb they name its object.
var nouns = words(
	`post request issue report file log email mail sms order comment label tag note review test trade`,
	`contact book branch snapshot form record index cache release build run update change import export upload`,
	`download sync backup commit deploy rollout rollback pull push publish schedule queue trigger lock block`,
	`link group vote star pin like rate flag share fork copy clone call transfer play draft patch`,
	`set start stop move cancel pause launch capture render print mount load stage stash lease`,
	`claim answer track scale mirror archive trash bookmark favorite follow invite cut dock ring route`,
	`redirect forward cherry cordon taint silence mute escalate ban connect sleep wake boot type press`,
	`fill focus tap click scroll drag draw paint process store duplicate new open split`,
	`clean override control handle switch raise fire crawl scrape login logout signup exit quit`,
	`mask zip touch leave resume setup failover replay retry hire complete`,
	`place reverse water repeat stream cast hash partition format flash bridge ship shift rent delay tunnel`,
	`pack seal strip heat harvest boost embed train attack make refresh permit grant reserve dispatch lift pivot`,
	`transform crop delegate join substitute feed hedge mark close pair turn toggle freeze dim zoom skip promote`,
	`secure compact correct warm cool lower zero exempt relate veto craft`,
)

// mostlyNouns are homographs that at the start of a name, before a read verb or
// a fact, are the thing read: order_list, build_status. In archive_list or
// update_status the first word is a verb.
var mostlyNouns = words(
	`order build release snapshot branch issue contact account index form file label tag note comment fork`,
	`test group book review email mail message schedule trade commit backup queue trigger lease rate store`,
	`cache stage stash process control type route call transfer checkout charge refund payment merge`,
	`shell sms record patch plan rollout`,
)

// stateful are the mostly nouns that have a state, and states the facts that
// tell it: build_status is read, while email_summary and release_version are done.
var stateful = words(
	`order build release snapshot branch issue contact account index form file fork backup queue trigger lease`,
	`process plan rollout transfer charge refund payment merge test cache call trade commit review group`,
)

var states = words(`status info information stats statistics history health`)

// joins make what follows them a verb of its own: get_or_create, list_then_purge.
var joins = words(`and or then plus also else nor but`)

// prepositions end the object of a verb.
var prepositions = words(`to for from in into on onto with by of at as via per within across under over about using`)

// effectsOf are the words that give the read verb before them effects: check in, extract archive.
var effectsOf = map[string]set{
	"check":   words(`in out off item items todo task box checkbox`),
	"extract": words(`archive zip tar to into`),
	"map":     words(`drive network port domain field fields`),
	"show":    words(`notification toast alert message`),
	"read":    words(`write`),
	"lint":    words(`fix`),
	"get":     words(`rid`),
}

// headings are read verbs that at the start of a name may be the thing acted
// upon, and finals the homographs that then are the verb at its end: scan_start, list_move.
var headings = words(`list search query count view check scan preview map sample diff screenshot forecast audit rank`)

var finals = words(
	`start stop cancel pause resume move copy clone share archive trash lock block trigger run reset retry`,
	`replay load mount publish deploy push pull sync mark pin star mute ban follow invite promote switch launch`,
	`duplicate restore rollback clean stage boost`,
)

// readingsOf are the words at the end of a name that leave the verb before them nothing but to read.
var readingsOf = map[string]set{
	"resolve": words(`id ids identifier url urls uri dns host hostname address ip symbol`),
	"convert": words(`currency time timezone unit units coordinates timestamp`),
	"capture": words(`screenshot screenshots`),
}

// fillers say how much or in which version, never what.
var fillers = words(`bulk batch many multiple all single one async v tool by new my the a an`)

// storing verbs only keep what they are given: a parameter of code is then data.
var storing = words(
	`create add insert append upsert write save store set update edit modify change register draft put upload`,
	`import generate compose configure publish annotate replace patch new make`,
)

// code are the languages and things that run: a verb that runs them runs anything.
var code = words(
	`sql psql command commands cmd script scripts code query queries javascript js typescript python bash shell powershell ruby`,
	`perl php lua applescript osascript cypher gremlin graphql kubectl expression eval snippet terminal console`,
	`cli statement statements program cql macro repl notebook cell ssh tty`,
)

// runners are the verbs that make code run.
var runners = words(`run rerun execute exec invoke call query submit send start launch perform process request dispatch apply do interact`)

// deeds are the nouns that cannot be taken back once made: create_payout, place_order.
var deeds = words(
	// Money.
	`payment payments payout payouts refund refunds charge charges transfer transfers withdrawal withdrawals`,
	`deposit order orders trade trades purchase donation disbursement settlement position positions bid`,
	`swap wager bet`,
	// Messages.
	`message messages email emails mail sms tweet tweets dm notification notifications announcement`,
	`reply fax toot call calls telegram newsletter`,
	// Losing.
	`deletion removal destruction termination purge restore migration migrations merge reset`,
)

// doers are the verbs that carry a deed out.
var doers = words(
	`create make place submit issue initiate post push execute process confirm capture approve authorize publish`,
	`run perform complete apply open request trigger start do transfer close publish commit deploy schedule`,
)

// drafts are the words that make a deed one that has not been done yet.
var drafts = words(`draft template preview test sandbox simulated mock dry quote scheduled`)

// transient are objects that a clear or a reset takes nothing lasting from.
var transient = words(
	`cache caches filter filters selection session sessions format formats formatting dir directory console`,
	`override overrides proxy cart state status alarm alarms breakpoint breakpoints highlight highlights cookie`,
	`cookies clipboard zoom view viewport default defaults context focus value flag timer counter style styles`,
	`reaction reactions menu location search field form input setting settings preference preferences`,
)

// ties are relations between things that stay: to remove one is to unlink.
var ties = words(
	`member members label labels tag tags reaction reactions assignee assignees reviewer reviewers watcher`,
	`watchers collaborator collaborators subscriber subscribers like likes star bookmark favorite favorites`,
	`favourite pin role roles permission permissions dependency dependencies relation relations link links`,
	`parent cover icon access participant participants attendee attendees follower followers flag flags`,
	`relationship relationships friend ai background vote votes tracks mute lock restriction`,
)

// writings are answers in a tracker, which can be edited and deleted.
var writings = words(`comment comments review reviews issue issues discussion discussions note ticket`)

// posted are the kinds of post that reach people at once.
var posted = words(`message messages tweet tweets dm notification toot chat slack reply alert email sms`)

// languages are what a query is written in when it may do more than read.
var languages = words(`sql psql tsql plsql cypher gremlin graphql surrealql`)

// shells are what runs anything, named without a verb.
var shells = words(
	`shell bash powershell terminal cmd command commands script scripts javascript python repl applescript kubectl`,
)

// protocols make a request a free one.
var protocols = words(`http https api rest raw graphql web arbitrary custom`)

// files are what unlink takes away for good.
var files = words(`file files path inode`)

// history is what a push publishes or rewrites.
var history = words(`commit commits branch branches tag tags changes ref refs remote`)

// owned are things whose transfer can be sent back.
var owned = words(
	`ownership owner issue issues project projects repository repo repos file files ticket task tasks domain case`,
	`cases call chat`,
)

// keystrokes are what is sent to a screen, not to people.
var keystrokes = words(`key keys keystroke keystrokes keyboard input shortcut hotkey button click mouse keyevent`)

// parts can be taken apart again, or were never lost by joining or dropping.
var parts = words(`cells cell pdf pdfs pin marker image images layers dataframe dataframes`)

// particles turn a sign into one at a door.
var particles = words(`in out off on up`)
