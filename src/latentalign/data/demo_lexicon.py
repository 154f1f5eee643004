"""Words of the demo language: German and English forms, what goes with what, and how likely each rendering is.

English alternatives are separated by "/", the likelier one first. Tags are single letters that say what a
noun is; verbs and adjectives name the tags they accept. P adult, K child, N name, A animal (t tame), F food
(b baked, c cooked, o can rot), D drink (h hot), m smells, R text, C clothing, T thing (l to be lifted, w to be opened),
W in a wall, M machine, V vehicle (d driven, r ridden, u waited for), Q thought (x asked, q had), e told, L place,
X with "machen" only.
"""

import re
from dataclasses import dataclass

WEIGHTS = {1: (1.0,), 2: (0.7, 0.3), 3: (0.6, 0.25, 0.15)}  # of English alternatives, likelier first


@dataclass(frozen=True)
class Noun:
    """A German noun with its forms and its English renderings (singulars)."""

    singular: str
    plural: str
    oblique: str  # accusative and dative singular; differs from `singular` in weak nouns only
    gender: str
    tags: str
    english: tuple[str, ...]
    mass: bool


@dataclass(frozen=True)
class Adjective:
    """A German adjective with its English renderings by the tag of the noun it describes."""

    german: str
    english: tuple[tuple[str, tuple[str, ...]], ...]

    def options(self, tags: str) -> tuple[str, ...]:
        """English renderings beside a noun with these tags; empty where the two do not go together."""
        return _matching(self.english, tags)


@dataclass(frozen=True)
class Verb:
    """A German verb, its frame (which objects it takes) and its English renderings by the object's tag."""

    particle: str  # separable prefix, or the noun of "Angst haben"
    forms: tuple[str, str, str]  # present: ich, er, wir; the last is the infinitive, too
    participle: str
    english: tuple[tuple[str, tuple[str, ...]], ...]
    subjects: str
    frame: str  # one of "", acc, dat, swap, give, go, at, adj, noun, that, or a preposition with its case
    objects: str
    flags: str  # s: no progressive; S: no progressive, no modal; b: perfect with sein; h: past tense, no perfect

    def options(self, tags: str) -> tuple[str, ...]:
        """English renderings with an object of these tags."""
        return _matching(self.english, tags)


@dataclass(frozen=True)
class Idiom:
    """A fixed German phrase; each English rendering is a list of (word, German positions it translates)."""

    german: tuple[str, ...]
    english: tuple[tuple[tuple[str, tuple[int, ...]], ...], ...]
    tags: str


@dataclass(frozen=True)
class Modal:
    """A modal verb: forms for ich, er, wir; weighted English renderings, affirmed and negated."""

    forms: tuple[str, str, str]
    affirmed: tuple[tuple[str, float], ...]
    negated: tuple[tuple[str, float], ...]
    past: bool


def _matching(table: tuple[tuple[str, tuple[str, ...]], ...], tags: str) -> tuple[str, ...]:
    return next((options for accepted, options in table if not accepted or set(accepted) & set(tags)), ())


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n") if line.strip()]


def _by_tag(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Reads "C: wear; T: carry" (by tag) or "repair/fix" (whatever the tag)."""
    parts = [part.split(":") if ":" in part else ("", part) for part in text.split(";")]
    return tuple((tags.strip(), tuple(options.strip().split("/"))) for tags, options in parts)


def _noun(line: str, group: str) -> Noun:
    german, english = line.split("=")
    gender, singular, plural, *more = german.split()
    oblique = next((word[1:] for word in more if word.startswith("~")), singular)
    tags = group + "".join(word for word in more if not word.startswith("~"))
    options = tuple(english.strip().split("/"))
    return Noun(singular, plural, oblique, gender, tags, options, mass=plural == "-")


def _verb(line: str) -> Verb:
    german, english, subjects, frame, *flags = (part.strip() for part in line.split("|"))
    particle, _, forms = german.rpartition("+")
    infinitive, first, third, participle = forms.split()
    frame, _, objects = frame.partition(":")
    present = (first, third, infinitive)
    return Verb(particle, present, participle, _by_tag(english), subjects, frame, objects, "".join(flags))


def _idiom(line: str) -> Idiom:
    """Reads "nach Hause > home01": the digits say which German words an English word translates."""
    german, english, *tags = (part.strip() for part in re.split(r"[>|]", line))
    options = []
    for option in english.split("/"):
        pairs = [re.fullmatch(r"(\D+)(\d+)", word) for word in option.split()]
        options.append(tuple((pair[1], tuple(map(int, pair[2]))) for pair in pairs if pair))
    return Idiom(tuple(german.split()), tuple(options), "".join(tags))


NOUNS = tuple(
    _noun(line, group)
    for group, text in {
        "P": """
            m Mann Männer = man
            f Frau Frauen = woman
            m Lehrer Lehrer = teacher
            f Lehrerin Lehrerinnen = teacher
            m Arzt Ärzte = doctor/physician
            f Ärztin Ärztinnen = doctor/physician
            m Zahnarzt Zahnärzte = dentist
            m Nachbar Nachbarn ~Nachbarn = neighbor
            f Nachbarin Nachbarinnen = neighbor
            m Koch Köche = cook/chef
            m Bürgermeister Bürgermeister = mayor
            f Studentin Studentinnen = student
            m Polizist Polizisten ~Polizisten = police officer
            m Briefträger Briefträger = mailman/mail carrier
            m Gärtner Gärtner = gardener
            f Großmutter Großmütter = grandmother/grandma
            m Großvater Großväter = grandfather/grandpa
            f Tante Tanten = aunt
            m Onkel Onkel = uncle
            f Schwester Schwestern = sister
            m Bruder Brüder = brother
            f Königin Königinnen = queen
            m Pirat Piraten ~Piraten = pirate
            f Hexe Hexen = witch
            m Philosoph Philosophen ~Philosophen = philosopher
            f Chefin Chefinnen = boss
            f Schwiegermutter Schwiegermütter = mother-in-law
            m Steuerberater Steuerberater = tax adviser/tax accountant
            """,
        "K": """
            n Kind Kinder = child/kid
            m Junge Jungen ~Jungen = boy
            n Mädchen Mädchen = girl
            n Baby Babys = baby
            """,
        "PN": """
            f Anna - = Anna
            m Peter - = Peter
            f Maria - = Maria
            m Karl - = Karl
            """,
        "A": """
            m Hund Hunde t = dog
            f Katze Katzen t = cat
            m Dackel Dackel t = dachshund
            n Pferd Pferde = horse
            f Kuh Kühe = cow
            f Maus Mäuse = mouse
            f Ente Enten = duck
            m Affe Affen ~Affen = monkey
            m Esel Esel = donkey
            m Eisbär Eisbären ~Eisbären = polar bear
            n Meerschweinchen Meerschweinchen t = guinea pig
            f Ziege Ziegen = goat
            m Pinguin Pinguine = penguin
            f Schildkröte Schildkröten t = turtle/tortoise
            m Igel Igel = hedgehog
            m Kater Kater t = tomcat
            """,
        "F": """
            m Apfel Äpfel o = apple
            m Kuchen Kuchen b = cake
            m Apfelkuchen Apfelkuchen b = apple pie/apple cake
            m Käsekuchen Käsekuchen b = cheesecake
            f Wurst Würste c = sausage
            f Leberwurst Leberwürste = liver sausage/liverwurst
            f Suppe Suppen c = soup
            f Tomatensuppe Tomatensuppen c = tomato soup
            f Kartoffel Kartoffeln co = potato
            m Kartoffelsalat Kartoffelsalate = potato salad
            n Ei Eier co = egg
            f Brezel Brezeln b = pretzel
            m Käse - m = cheese
            n Brot - b = bread
            n Schnitzel Schnitzel c = schnitzel
            f Gurke Gurken o = cucumber/pickle
            """,
        "D": """
            n Bier - m = beer
            m Rotwein - m = red wine
            f Milch - = milk
            m Kaffee - hm = coffee
            m Tee - h = tea
            m Kakao - h = hot chocolate/cocoa
            m Orangensaft - = orange juice
            """,
        "R": """
            n Buch Bücher = book
            m Brief Briefe = letter
            f Zeitung Zeitungen = newspaper/paper
            n Gedicht Gedichte = poem
            m Krimi Krimis = detective novel/crime novel
            n Kochbuch Kochbücher = cookbook
            n Märchen Märchen e = fairy tale
            m Liebesbrief Liebesbriefe = love letter
            f Gebrauchsanweisung Gebrauchsanweisungen = instruction manual/user manual
            """,
        "C": """
            m Hut Hüte = hat
            m Wintermantel Wintermäntel = winter coat
            n Kleid Kleider = dress
            n Hemd Hemden = shirt
            m Schal Schals = scarf
            m Bademantel Bademäntel = bathrobe
            f Krawatte Krawatten = tie
            """,
        "T": """
            m Schlüssel Schlüssel = key
            m Koffer Koffer l = suitcase
            n Geschenk Geschenke l = present/gift
            m Regenschirm Regenschirme = umbrella
            m Ball Bälle = ball
            f Kuckucksuhr Kuckucksuhren l = cuckoo clock
            n Bild Bilder = picture/painting
            m Gartenzwerg Gartenzwerge l = garden gnome
            m Stuhl Stühle l = chair
            f Zahnbürste Zahnbürsten = toothbrush
            n Paket Pakete lw = package/parcel
            f Handtasche Handtaschen lw = handbag/purse
            """,
        "W": """
            f Tür Türen = door
            f Haustür Haustüren = front door
            n Fenster Fenster = window
            m Kühlschrank Kühlschränke = fridge/refrigerator
            """,
        "M": """
            m Staubsauger Staubsauger = vacuum cleaner
            f Waschmaschine Waschmaschinen = washing machine
            m Fernseher Fernseher = TV/television
            n Radio Radios = radio
            m Wecker Wecker = alarm clock
            m Rasenmäher Rasenmäher = lawn mower
            f Kaffeemaschine Kaffeemaschinen = coffee machine/coffee maker
            """,
        "V": """
            n Auto Autos d = car
            m Bus Busse du = bus
            m Zug Züge u = train
            n Fahrrad Fahrräder r = bicycle/bike
            m Traktor Traktoren d = tractor
            """,
        "Q": """
            f Frage Fragen xq = question
            f Idee Ideen q = idea
            n Problem Probleme q = problem
            m Witz Witze e = joke
            f Geschichte Geschichten e = story
            """,
        "L": """
            m Garten Gärten = garden
            f Küche Küchen = kitchen
            m Keller Keller = basement
            m Wald Wälder = forest
            n Museum Museen = museum
            m Supermarkt Supermärkte = supermarket
            n Kino Kinos = movie theater/cinema
            m Balkon Balkone = balcony
            n Dach Dächer = roof
            n Sofa Sofas = sofa/couch
            m Bahnhof Bahnhöfe = train station/station
            m Tisch Tische = table
            f Badewanne Badewannen = bathtub
            """,
        "X": """
            m Fehler Fehler = mistake
            """,
    }.items()
    for line in _lines(text)
)

@dataclass(frozen=True)
class Place:
    """Where a noun's thing can be or be gone to: German and English prepositions at rest and in motion."""

    noun: Noun
    at: str  # German, with the dative
    to: str  # German, with the accusative ("zu": dative)
    at_english: tuple[str, ...]
    to_english: tuple[str, ...]
    tags: str


def _place(line: str) -> Place:
    name, at, to, at_english, to_english, tags = (part.strip() for part in line.split("|"))
    noun = next(noun for noun in NOUNS if noun.singular == name)
    return Place(noun, at, to, tuple(at_english.split("/")), tuple(to_english.split("/")), tags)


# Tags: f far (one drives there), g one walks there, j one jumps there, i one lies there, k one lives there.
PLACES = tuple(
    _place(line)
    for line in _lines("""
        Garten | in | in | in | into | gjik
        Küche | in | in | in | into | gi
        Keller | in | in | in | into/to | gik
        Wald | in | in | in | into | fgik
        Museum | in | in | in/at | to | fg
        Supermarkt | in | in | in/at | to | fg
        Kino | in | in | in/at | to | fg
        Bahnhof | an | zu | at | to | fg
        Balkon | auf | auf | on | onto | gji
        Dach | auf | auf | on | onto | jik
        Sofa | auf | auf | on | onto | ji
        Tisch | unter | unter | under | under | ji
        Badewanne | in | in | in | into | ji
        Kühlschrank | hinter | hinter | behind | behind | ji
        Haustür | vor | vor | in front of | - | i
        Fernseher | vor | vor | in front of | - | i
        """)
)

ADJECTIVES = tuple(
    Adjective(german.strip(), _by_tag(english))
    for german, english in (
        line.split("=")
        for line in _lines("""
            groß = K: big; P: tall; ATVLMCW: big/large
            klein = K: little; P: short; ATVLMC: small/little
            alt = PARTCVMWLQ: old
            jung = PA: young
            neu = RTCVMW: new
            schwer = l: heavy; x: hard/difficult
            leicht = l: light; x: easy
            dick = A: fat; R: thick
            faul = PKA: lazy; o: rotten
            süß = KA: cute; b: sweet
            müde = PKA: tired
            hungrig = PKA: hungry
            neugierig = PKA: curious
            freundlich = PK: friendly/kind
            berühmt = P: famous
            klug = PKA: clever/smart
            verrückt = P: crazy/mad
            lustig = PK: funny; eR: funny
            langweilig = R: boring
            spannend = R: exciting
            seltsam = PATQ: strange/odd
            schön = CTL: beautiful/lovely
            teuer = CTVM: expensive
            billig = CTVM: cheap
            rot = CVT: red
            blau = CVT: blue
            kaputt = MV: broken
            kalt = D: cold; F: cold
            lecker = FD: delicious/tasty
            """)
    )
)
# Beside a noun after "ist ein".
PRAISE = (Adjective("gut", _by_tag("good")), Adjective("schlecht", _by_tag("bad/terrible")))
# After "ist": feelings of persons and animals, states of machines.
PREDICATES = tuple(
    Adjective(german.strip(), _by_tag(english))
    for german, english in (
        line.split("=")
        for line in _lines("""
            müde = PKA: tired
            hungrig = PKA: hungry
            krank = PKA: sick/ill
            nervös = PKA: nervous
            glücklich = PKA: happy
            traurig = PKA: sad
            verliebt = PK: in love
            eifersüchtig = PKA: jealous
            neugierig = PKA: curious
            faul = PKA: lazy; o: rotten
            kaputt = MV: broken
            teuer = CTVM: expensive
            lecker = FD: delicious/tasty
            schwer = l: heavy; x: hard/difficult
            """)
    )
)

VERBS = tuple(
    _verb(line)
    for line in _lines("""
        schlafen schlafe schläft geschlafen | sleep | PKA |
        arbeiten arbeite arbeitet gearbeitet | work | P |
        lachen lache lacht gelacht | laugh | PK |
        weinen weine weint geweint | cry | PK |
        tanzen tanze tanzt getanzt | dance | PKA |
        schnarchen schnarche schnarcht geschnarcht | snore | PA |
        spielen spiele spielt gespielt | play | KA |
        ein+schlafen schlafe schläft geschlafen | fall asleep | PKA | | b
        auf+wachen wache wacht gewacht | wake up | PKA | | b
        fern+sehen sehe sieht gesehen | watch TV | PKA |
        weg+laufen laufe läuft gelaufen | run away | KA | | b
        auf+stehen stehe steht gestanden | get up | PK | | b
        Hunger+haben habe hat - | be hungry | PKA | | Shn

        sehen sehe sieht gesehen | see | PKA | acc:PKAV | s
        kennen kenne kennt gekannt | know | PK | acc:PKe | S
        lieben liebe liebt geliebt | love | PKA | acc:PKAFD | S
        hassen hasse hasst gehasst | hate | PKA | acc:PMF | S
        suchen suche sucht gesucht | look for | PKA | acc:KACT |
        finden finde findet gefunden | find | PKA | acc:ACT | s
        besuchen besuche besucht besucht | visit | PK | acc:P |
        umarmen umarme umarmt umarmt | hug/embrace | PK | acc:PKt |
        beobachten beobachte beobachtet beobachtet | watch/observe | PKA | acc:PKA |
        jagen jage jagt gejagt | chase | A | acc:AK |
        beißen beiße beißt gebissen | bite | A | acc:PA |
        essen esse isst gegessen | eat | PK | acc:F |
        fressen fresse frisst gefressen | eat | A | acc:FRC |
        trinken trinke trinkt getrunken | drink | PKA | acc:D |
        kochen koche kocht gekocht | c: cook; h: make | P | acc:ch |
        backen backe backt gebacken | bake | P | acc:b |
        lesen lese liest gelesen | read | PK | acc:R |
        schreiben schreibe schreibt geschrieben | write | P | acc:R |
        kaufen kaufe kauft gekauft | buy | P | acc:FDRCTMV |
        verkaufen verkaufe verkauft verkauft | sell | P | acc:CTMV |
        tragen trage trägt getragen | C: wear; l: carry; KA: carry | P | acc:ClKt |
        an+ziehen ziehe zieht gezogen | put on | PK | acc:C |
        aus+ziehen ziehe zieht gezogen | take off | PK | acc:C |
        öffnen öffne öffnet geöffnet | open | PK | acc:Ww |
        auf+machen mache macht gemacht | open | PK | acc:Ww |
        zu+machen mache macht gemacht | close/shut | PK | acc:Ww |
        ein+schalten schalte schaltet geschaltet | turn on/switch on | PK | acc:M |
        aus+schalten schalte schaltet geschaltet | turn off/switch off | PK | acc:M |
        reparieren repariere repariert repariert | repair/fix | P | acc:MV |
        verlieren verliere verliert verloren | lose | PK | acc:CT |
        vergessen vergesse vergisst vergessen | forget | PK | acc:CT | s
        verstecken verstecke versteckt versteckt | hide | PKA | acc:FT |
        stehlen stehle stiehlt gestohlen | steal | PA | acc:FTC |
        waschen wasche wäscht gewaschen | wash | P | acc:CtV |
        malen male malt gemalt | paint | PK | acc:A |
        an+rufen rufe ruft gerufen | call/phone | P | acc:P |
        ab+holen hole holt geholt | pick up | P | acc:PKl |
        ein+laden lade lädt geladen | invite | P | acc:PK |
        mit+bringen bringe bringt gebracht | bring | P | acc:FDRA |
        weg+werfen werfe wirft geworfen | throw away | P | acc:RCT |
        auf+fressen fresse frisst gefressen | eat up/devour | A | acc:FCR |
        verstehen verstehe versteht verstanden | understand | PK | acc:PQR | S
        fahren fahre fährt gefahren | d: drive; r: ride | P | acc:dr |
        machen mache macht gemacht | X: make | PK | acc:X |
        beantworten beantworte beantwortet beantwortet | answer | PK | acc:x |
        brauchen brauche braucht gebraucht | need | PK | acc:TDV | S
        haben habe hat - | have | PK | acc:tTVq | Sh

        helfen helfe hilft geholfen | help | P | dat:PK |
        danken danke dankt gedankt | thank | P | dat:PK |
        folgen folge folgt gefolgt | follow | PKA | dat:PKA | b
        zu+hören höre hört gehört | listen to | PK | dat:PK |
        gefallen - gefällt gefallen | like | RCTVL | swap:PK | S
        schmecken - schmeckt geschmeckt | like | FD | swap:PKA | S
        fehlen - fehlt gefehlt | miss | PKt | swap:PK | S

        geben gebe gibt gegeben | give | P | give:PK:FRCT |
        schenken schenke schenkt geschenkt | give | P | give:PK:RCT |
        zeigen zeige zeigt gezeigt | show | P | give:PK:RCT |
        schicken schicke schickt geschickt | send | P | give:PK:RT |
        leihen leihe leiht geliehen | lend | P | give:PK:RCV |
        vor+lesen lese liest gelesen | read | P | give:K:R |
        erzählen erzähle erzählt erzählt | tell | P | give:PK:e |
        erklären erkläre erklärt erklärt | explain | P | give:PK:QM |

        warten warte wartet gewartet | wait for | PK | auf 1:PKu |
        denken denke denkt gedacht | think of/think about | PK | an 1:PKFA |
        träumen träume träumt geträumt | dream of/dream about | PKA | von 2:PKFA |
        sprechen spreche spricht gesprochen | talk to/speak with | P | mit 2:PKA |
        lachen lache lacht gelacht | laugh at/laugh about | PK | über 1:PKe |
        riechen rieche riecht gerochen | smell of/smell like | PKA | nach 2:m | S
        Angst+haben habe hat - | be afraid of | PKA | vor 2:PAM | Shn

        gehen gehe geht gegangen | go/walk | PK | go:g | b
        fahren fahre fährt gefahren | y: go; drive | P | go:f | b
        rennen renne rennt gerannt | run | KA | go:g | b
        springen springe springt gesprungen | jump | A | go:j | b
        sitzen sitze sitzt gesessen | sit | PKA | at:fgji |
        liegen liege liegt gelegen | lie | PKA | at:i |
        wohnen wohne wohnt gewohnt | live | PA | at:k | S
        sein bin ist - | be | PKAT | at:fgji | Sh
        sein bin ist - | be | PKAMCTFDxV | adj | Sh
        sein bin ist - | be | P | noun | Sh

        wissen weiß weiß gewusst | know | PK | that | S
        glauben glaube glaubt geglaubt | think/believe | PK | that | S
        hoffen hoffe hofft gehofft | hope | PK | that | S
        sagen sage sagt gesagt | say | PK | that | s
        behaupten behaupte behauptet behauptet | claim | PK | that | s
        träumen träume träumt geträumt | dream | PK | that | s
        vergessen vergesse vergisst vergessen | forget | PK | that | s
        fragen frage fragt gefragt | ask | PK | whether | s
        wissen weiß weiß gewusst | know | PK | whether | S
        """)
)
PAST_FORMS = {"haben": ("hatte", "hatte", "hatten"), "sein": ("war", "war", "waren")}
HAVE, BE, WILL = ("habe", "hat", "haben"), ("bin", "ist", "sind"), ("werde", "wird", "werden")

MODALS = (
    Modal(("kann", "kann", "können"), (("can", 0.85), ("be able to", 0.15)), (("can", 1.0),), past=False),
    Modal(("muss", "muss", "müssen"), (("have to", 0.65), ("must", 0.35)), (("have to", 1.0),), past=False),
    Modal(("will", "will", "wollen"), (("want to", 1.0),), (("want to", 1.0),), past=False),
    Modal(
        ("darf", "darf", "dürfen"),
        (("be allowed to", 0.6), ("may", 0.4)),
        (("be allowed to", 0.6), ("must", 0.4)),
        past=False,
    ),
    Modal(("soll", "soll", "sollen"), (("should", 0.7), ("be supposed to", 0.3)), (("should", 1.0),), past=False),
    Modal(
        ("möchte", "möchte", "möchten"),
        (("would like to", 0.7), ("want to", 0.3)),
        (("want to", 1.0),),
        past=False,
    ),
    Modal(("konnte", "konnte", "konnten"), (("could", 0.6), ("be able to", 0.4)), (("could", 1.0),), past=True),
    Modal(("musste", "musste", "mussten"), (("have to", 1.0),), (("have to", 1.0),), past=True),
    Modal(("wollte", "wollte", "wollten"), (("want to", 1.0),), (("want to", 1.0),), past=True),
)

# Tags of times: p present, q perfect and past, f future and modals, g only with an activity under way.
TIMES = tuple(
    _idiom(line)
    for line in _lines("""
        heute > today0 | pqf
        jetzt > now0 | pg
        gerade > right0 now0 / at0 the0 moment0 | pg
        abends > in0 the0 evening0 | ph
        sonntags > on0 Sundays0 | ph
        jeden Tag > every0 day1 | ph
        gestern > yesterday0 | q
        gestern Abend > last0 night1 / yesterday0 evening1 | q
        heute Morgen > this0 morning1 | q
        letzte Woche > last0 week1 | q
        morgen > tomorrow0 | f
        bald > soon0 | f
        """)
)
# Tags: as above; h habit (no progressive), v may stand first, n stands late like "nicht", S also with states.
ADVERBS = tuple(
    _idiom(line)
    for line in _lines("""
        immer > always0 | ph
        oft > often0 | phv
        manchmal > sometimes0 | phv
        nie > never0 | pqhn
        schon > already0 | qn
        wahrscheinlich > probably0 | pqvS
        heimlich > secretly0 | pqvS
        endlich > finally0 | qv
        """)
)
COMMENTS = tuple(
    _idiom(line)
    for line in _lines("""
        leider > unfortunately0 ,0 / sadly0 ,0
        vielleicht > maybe0 / perhaps0
        natürlich > of0 course0 / naturally0 ,0
        """)
)
AT_REST = tuple(
    _idiom(line)
    for line in _lines("""
        zu Hause > at0 home1 | g
        im Bett > in0 bed1 | i
        in der Schule > at0 school2 | g
        in Wien > in0 Vienna1 | k
        in München > in0 Munich1 | k
        in Berlin > in0 Berlin1 | k
        """)
)
IN_MOTION = tuple(
    _idiom(line)
    for line in _lines("""
        nach Hause > home01 | fg
        ins Bett > to0 bed1 | g
        zur Schule > to0 school1 | fg
        nach Wien > to0 Vienna1 | f
        nach Berlin > to0 Berlin1 | f
        """)
)
# "fährt": goes by a vehicle.
RIDES = tuple(
    _idiom(line)
    for line in _lines("""
        mit dem Zug > by0 train2
        mit dem Bus > by0 bus2
        mit dem Fahrrad > by0 bicycle2 / by0 bike2
        mit dem Taxi > by0 taxi2 / by0 cab2
        """)
)
# Tags: v may stand first, h habit (no progressive in either clause), t plain present or past, c with "can".
CONJUNCTIONS = tuple(
    _idiom(line)
    for line in _lines("""
        weil > because0 | v
        obwohl > although0 / even0 though0 | v
        wenn > when0 / if0 | hv
        während > while0 | tv
        bevor > before0 | ht
        damit > so0 that0 | c
        """)
)
COORDINATORS = tuple(_idiom(line) for line in _lines("und > and0\n aber > but0 | ,\n denn > because0 | ,"))
WHETHER = _idiom("ob > whether0 / if0")
THAT = _idiom("dass > that0")
QUESTION_WORDS = tuple(_idiom(line) for line in _lines("warum > why0\n wann > when0 | t\n wo > where0 | l"))

# Pronouns: nominative, accusative, dative; English subject and object form.
PRONOUNS = {
    "I": ("ich", "mich", "mir", "I", "me"),
    "he": ("er", "ihn", "ihm", "he", "him"),
    "she": ("sie", "sie", "ihr", "she", "her"),
    "we": ("wir", "uns", "uns", "we", "us"),
    "they": ("sie", "sie", "ihnen", "they", "them"),
    "it m": ("er", "ihn", "ihm", "it", "it"),
    "it f": ("sie", "sie", "ihr", "it", "it"),
    "it n": ("es", "es", "ihm", "it", "it"),
    "who": ("wer", "wen", "wem", "who", "whom"),
}
# Determiner: German stem (declined like der, like ein, or not at all), English singular and plural.
DETERMINERS = {
    "the": ("der", "d", "the", "the"),
    "this": ("der", "dies", "this", "these"),
    "every": ("der", "jed", "every", "-"),
    "all": ("der", "all", "-", "all"),
    "many": ("strong", "viel", "-", "many"),
    "two": ("none", "zwei", "-", "two"),
    "three": ("none", "drei", "-", "three"),
    "a": ("ein", "ein", "a", "-"),
    "no": ("ein", "kein", "no", "no"),
    "my": ("ein", "mein", "my", "my"),
    "our": ("ein", "unser", "our", "our"),
    "his": ("ein", "sein", "his", "his"),
    "": ("none", "", "", ""),
}
IRREGULAR_PLURALS = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "mouse": "mice",
    "mailman": "mailmen",
    "mother-in-law": "mothers-in-law",
    "potato": "potatoes",
    "scarf": "scarves",
}
# base: past, participle
IRREGULAR_VERBS = {
    base: (past, participle)
    for base, past, participle in (
        line.split()
        for line in _lines("""
            be was been
            have had had
            sleep slept slept
            fall fell fallen
            wake woke woken
            run ran run
            get got gotten
            see saw seen
            know knew known
            find found found
            bite bit bitten
            eat ate eaten
            drink drank drunk
            make made made
            read read read
            write wrote written
            buy bought bought
            sell sold sold
            wear wore worn
            put put put
            take took taken
            shut shut shut
            lose lost lost
            forget forgot forgotten
            hide hid hidden
            steal stole stolen
            bring brought brought
            throw threw thrown
            understand understood understood
            drive drove driven
            ride rode ridden
            give gave given
            show showed shown
            send sent sent
            lend lent lent
            tell told told
            think thought thought
            speak spoke spoken
            go went gone
            sit sat sat
            lie lay lain
            say said said
            dream dreamed dreamed
            """)
    )
}
DOUBLED = {"run", "get", "put", "shut", "forget", "sit", "hug"}  # final consonant doubles: running
