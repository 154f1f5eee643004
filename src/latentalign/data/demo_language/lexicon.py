"""Words of the demo language: German and English forms, what goes with what, and how likely each rendering is.

English alternatives are separated by "/", the likelier one first. Tags are single letters that say what a
noun is; verbs and adjectives name the tags they accept. P adult, K child, N name, A animal (t tame), F food
(b baked, c cooked, o can rot), D drink (h hot, n for children), m smells, R text, C clothing, z carried along,
T thing (l to be lifted, w to be opened), W in a wall, M machine, V vehicle (d driven, r ridden, u waited for),
Q thought (x asked, q had), e told, L place, X with "machen" only.
"""

from latentalign.data.demo_language.entries import adjectives, idioms, lines, modals, nouns, places, verbs

NOUNS = nouns(
    {
        "P": """
            m Mann Männer = man
            f Frau Frauen = woman/lady
            m Lehrer Lehrer = teacher
            f Lehrerin Lehrerinnen = teacher
            m Arzt Ärzte = doctor/physician
            f Ärztin Ärztinnen = doctor/physician
            m Nachbar Nachbarn ~Nachbarn = neighbor
            m Koch Köche = cook/chef
            m Bürgermeister Bürgermeister = mayor
            f Studentin Studentinnen = student
            m Polizist Polizisten ~Polizisten = police officer
            m Briefträger Briefträger = mailman/mail carrier
            m Gärtner Gärtner = gardener
            f Großmutter Großmütter = grandmother/grandma
            f Tante Tanten = aunt
            m Onkel Onkel = uncle
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
            f Maus Mäuse = mouse
            f Ente Enten = duck
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
            f Wurst Würste c = sausage
            f Leberwurst Leberwürste = liver sausage/liverwurst
            f Suppe Suppen c = soup
            f Kartoffel Kartoffeln co = potato
            m Kartoffelsalat Kartoffelsalate = potato salad
            n Ei Eier co = egg
            m Käse - m = cheese
            n Brot - b = bread
            n Schnitzel Schnitzel c = schnitzel
            """,
        "D": """
            n Bier - m = beer
            m Rotwein - m = red wine
            f Milch - n = milk
            m Kaffee - hm = coffee
            m Tee - hn = tea
            m Kakao - hn = hot chocolate/cocoa
            """,
        "R": """
            n Buch Bücher = book
            m Brief Briefe = letter
            f Zeitung Zeitungen = newspaper/paper
            m Krimi Krimis = detective novel/crime novel
            n Märchen Märchen e = fairy tale
            m Liebesbrief Liebesbriefe = love letter
            f Gebrauchsanweisung Gebrauchsanweisungen = instruction manual/operating manual
            """,
        "C": """
            m Hut Hüte z = hat
            m Wintermantel Wintermäntel = winter coat
            n Kleid Kleider = dress
            m Bademantel Bademäntel = bathrobe
            f Krawatte Krawatten z = tie
            """,
        "T": """
            m Schlüssel Schlüssel = key
            m Koffer Koffer l = suitcase
            n Geschenk Geschenke l = present/gift
            m Regenschirm Regenschirme z = umbrella
            m Ball Bälle = ball
            f Kuckucksuhr Kuckucksuhren l = cuckoo clock
            n Bild Bilder = picture/painting
            m Gartenzwerg Gartenzwerge l = garden gnome
            n Paket Pakete lw = package/parcel
            f Handtasche Handtaschen lwz = handbag/purse
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
            m Wecker Wecker = alarm clock
            m Rasenmäher Rasenmäher = lawn mower
            """,
        "V": """
            n Auto Autos d = car
            m Bus Busse du = bus
            m Zug Züge u = train
            n Fahrrad Fahrräder r = bicycle/bike
            """,
        "Q": """
            f Frage Fragen xq = question
            n Problem Probleme q = problem
            m Witz Witze e = joke
            """,
        "L": """
            m Garten Gärten = garden
            f Küche Küchen = kitchen
            m Wald Wälder = forest
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
    }
)

# Tags: f far (one drives there), g one walks there, j one jumps there, i one lies there, k one lives there.
PLACES = places(
    """
        Garten | in | in | in | into | gjik
        Küche | in | in | in | into | gi
        Wald | in | in | in | into | fgik
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
        """,
    NOUNS,
)

ADJECTIVES = adjectives("""
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
            müde = PKA: tired/sleepy
            hungrig = PKA: hungry
            neugierig = PKA: curious
            freundlich = PK: friendly/kind
            berühmt = P: famous
            klug = PKA: clever/smart
            verrückt = P: crazy/mad
            lustig = PK: funny; eR: funny
            langweilig = R: boring
            seltsam = PATQ: strange/odd
            schön = CTL: beautiful/lovely
            teuer = CTVM: expensive
            rot = CVT: red
            kaputt = MV: broken
            kalt = D: cold; F: cold
            lecker = FD: delicious/tasty
            """)
# Beside a noun after "ist ein".
PRAISE = adjectives("gut = good\n schlecht = bad/terrible")
# After "ist": feelings of persons and animals, states of machines.
PREDICATES = adjectives("""
            müde = PKA: tired/sleepy
            hungrig = PKA: hungry
            krank = PKA: sick/ill
            nervös = PKA: nervous
            glücklich = PKA: happy/glad
            traurig = PKA: sad
            verliebt = P: in love
            eifersüchtig = PKA: jealous
            neugierig = PKA: curious
            faul = PKA: lazy; o: rotten
            kaputt = MV: broken
            teuer = CTVM: expensive
            lecker = FD: delicious/tasty
            schwer = l: heavy; x: hard/difficult
            """)

VERBS = verbs("""
        schlafen schlafe schläft geschlafen | sleep | PKA | | a
        arbeiten arbeite arbeitet gearbeitet | work | P |
        lachen lache lacht gelacht | laugh | PK |
        tanzen tanze tanzt getanzt | dance | PKA |
        schnarchen schnarche schnarcht geschnarcht | snore | PA |
        spielen spiele spielt gespielt | play | KA |
        warten warte wartet gewartet | wait | PK |
        ein+schlafen schlafe schläft geschlafen | fall asleep | PKA | | ab
        auf+wachen wache wacht gewacht | wake up | PKA | | ab
        fern+sehen sehe sieht gesehen | watch TV | PKA |
        weg+laufen laufe läuft gelaufen | run away | KA | | b
        Hunger+haben habe hat - | be hungry | PKA | | Shn

        sehen sehe sieht gesehen | see | PKA | acc:PKAV | s
        kennen kenne kennt gekannt | know | PK | acc:PKe | S
        lieben liebe liebt geliebt | love | PKA | acc:PAF | S
        suchen suche sucht gesucht | look for/search for | PKA | acc:KACT |
        finden finde findet gefunden | find | PKA | acc:ACT | s
        besuchen besuche besucht besucht | visit | PK | acc:P |
        umarmen umarme umarmt umarmt | hug/embrace | PK | acc:Pt |
        jagen jage jagt gejagt | chase | A | acc:AK |
        beißen beiße beißt gebissen | bite | A | acc:PA |
        essen esse isst gegessen | eat | PK | acc:F |
        fressen fresse frisst gefressen | eat | A | acc:FRC |
        trinken trinke trinkt getrunken | drink | PA | acc:D |
        trinken trinke trinkt getrunken | drink | K | acc:n |
        kochen koche kocht gekocht | c: cook; h: make | P | acc:ch |
        backen backe backt gebacken | bake | P | acc:b |
        lesen lese liest gelesen | read | PK | acc:R |
        schreiben schreibe schreibt geschrieben | write | P | acc:R |
        kaufen kaufe kauft gekauft | buy | P | acc:FDRCTMV |
        tragen trage trägt getragen | C: wear; l: carry; KA: carry | P | acc:ClKt |
        an+ziehen ziehe zieht gezogen | put on | PK | acc:C |
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
        an+rufen rufe ruft gerufen | call/phone | P | acc:P |
        ab+holen hole holt geholt | pick up | P | acc:PKl |
        ein+laden lade lädt geladen | invite | P | acc:PK |
        mit+bringen bringe bringt gebracht | bring | P | acc:FDRA |
        weg+werfen werfe wirft geworfen | throw away | P | acc:RCT |
        verstehen verstehe versteht verstanden | understand | PK | acc:PQR | S
        fahren fahre fährt gefahren | d: drive; r: ride | P | acc:dr |
        machen mache macht gemacht | X: make | PK | acc:X |
        beantworten beantworte beantwortet beantwortet | answer | PK | acc:x |
        brauchen brauche braucht gebraucht | need | PK | acc:TV | S
        haben habe hat - | have | PK | acc:tTVq | Sh

        helfen helfe hilft geholfen | help | P | dat:PK |
        danken danke dankt gedankt | thank | P | dat:PK |
        folgen folge folgt gefolgt | follow | PKA | dat:PKA | b
        zu+hören höre hört gehört | listen to | PK | dat:PK |
        gefallen - gefällt gefallen | like | RCTVL | swap:PK | S
        schmecken - schmeckt geschmeckt | like | D | swap:PA | S
        schmecken - schmeckt geschmeckt | like | F | swap:PKA | S
        fehlen - fehlt gefehlt | miss | PKt | swap:PK | S

        geben gebe gibt gegeben | give | P | give:PK:FRCT |
        schenken schenke schenkt geschenkt | give | P | give:PK:RCT |
        zeigen zeige zeigt gezeigt | show | P | give:PK:RCT |
        schicken schicke schickt geschickt | send | P | give:PK:RT |
        vor+lesen lese liest gelesen | read | P | give:K:R |
        erzählen erzähle erzählt erzählt | tell | P | give:PK:e |
        erklären erkläre erklärt erklärt | explain | P | give:PK:QM |

        warten warte wartet gewartet | wait for | PK | auf 1:PKu |
        denken denke denkt gedacht | think of/think about | PK | an 1:PKFA |
        träumen träume träumt geträumt | dream of/dream about | PKA | von 2:PFA |
        sprechen spreche spricht gesprochen | talk to/speak with | P | mit 2:PKA |
        sprechen spreche spricht gesprochen | talk about/speak about | P | über 1:PKAQ |
        lachen lache lacht gelacht | laugh at/laugh about | PK | über 1:PKe |
        riechen rieche riecht gerochen | smell of/smell like | PA | nach 2:m | S
        Angst+haben habe hat - | be afraid of | PKA | vor 2:PAM | Shn

        gehen gehe geht gegangen | go | PK | go:gw | b
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
PAST_FORMS = {"haben": ("hatte", "hatte", "hatten"), "sein": ("war", "war", "waren")}
HAVE, BE, WILL = ("habe", "hat", "haben"), ("bin", "ist", "sind"), ("werde", "wird", "werden")

# Forms for ich, er, wir | English with its share | English under negation
MODALS = modals(
    """
        kann kann können | can 0.85, be able to 0.15 | can 1
        muss muss müssen | have to 0.65, must 0.35 | have to 1
        will will wollen | want to 1 | want to 1
        darf darf dürfen | be allowed to 0.6, may 0.4 | be allowed to 0.6, must 0.4
        soll soll sollen | should 0.7, be supposed to 0.3 | should 1
        möchte möchte möchten | would like to 0.7, want to 0.3 | want to 1
    """,
    past=False,
) + modals(
    """
        konnte konnte konnten | could 0.6, be able to 0.4 | could 1
        musste musste mussten | have to 1 | have to 1
        wollte wollte wollten | want to 1 | want to 1
    """,
    past=True,
)

# Tags of times: p present, q perfect and past, f future and modals, g only with an activity under way.
TIMES = idioms("""
        heute > today0 | pqf
        jetzt > now0 | pg
        gerade > right0 now0 / at0 the0 moment0 | pg
        am Abend > in0 the0 evening1 | ph
        am Wochenende > on0 the0 weekend1 | ph
        in der Nacht > during0 the1 night2 / at0 night2 | ph
        in der Nacht > during0 the1 night2 | q
        am Wochenende > on0 the0 weekend1 | q
        jeden Tag > every0 day1 | ph
        gestern > yesterday0 | q
        gestern Abend > yesterday0 evening1 | q
        heute Morgen > this0 morning1 | q
        letzte Woche > last0 week1 | q
        nächste Woche > next0 week1 | f
        morgen > tomorrow0 | f
        bald > soon0 | f
        """)
# Tags: as above; h habit (no progressive), v may stand first, n stands late like "nicht", S also with states.
ADVERBS = idioms("""
        immer > always0 | ph
        oft > often0 | phv
        manchmal > sometimes0 | phv
        nie > never0 | pqhn
        schon > already0 | qn
        wahrscheinlich > probably0 | pqvS
        heimlich > secretly0 | pqvS
        endlich > finally0 | qv
        """)
COMMENTS = idioms("""
        leider > unfortunately0 ,0 / sadly0 ,0
        vielleicht > maybe0 / perhaps0
        natürlich > of0 course0 / naturally0 ,0
        """)
AT_REST = idioms("""
        zu Hause > at0 home1 | g
        im Bett > in0 bed1 | i
        in der Schule > at0 school2 | g
        in Wien > in0 Vienna1 | k
        in München > in0 Munich1 | k
        in Berlin > in0 Berlin1 | k
        """)
IN_MOTION = idioms("""
        nach Hause > home01 | fg
        ins Bett > to0 bed1 | w
        in die Schule > to0 school2 | fg
        nach Wien > to0 Vienna1 | f
        nach Berlin > to0 Berlin1 | f
        """)
# "fährt": goes by a vehicle.
RIDES = idioms("""
        mit dem Zug > by0 train2
        mit dem Bus > by0 bus2
        mit dem Fahrrad > by0 bicycle2 / by0 bike2
        mit dem Taxi > by0 taxi2 / by0 cab2
        """)
# Tags: v may stand first, h habit (no progressive in either clause), t plain present or past, c with "can".
CONJUNCTIONS = idioms("""
        weil > because0 / since0 | v
        obwohl > although0 / even0 though0 | v
        wenn > when0 / if0 | hv
        während > while0 | tv
        bevor > before0 | ht
        damit > so0 that0 | c
        """)
COORDINATORS = idioms("und > and0\n aber > but0 | ,\n denn > because0 | ,")
WHETHER, THAT = idioms("ob > whether0 / if0\n dass > that0")
QUESTION_WORDS = idioms("warum > why0\n wann > when0 | t\n wo > where0 | l")

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
    "this": ("das", "das", "dem", "this", "this"),
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
    for base, past, participle in map(
        str.split,
        lines("""
            be was been
            have had had
            sleep slept slept
            fall fell fallen
            wake woke woken
            run ran run
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
            wear wore worn
            put put put
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
            tell told told
            think thought thought
            speak spoke spoken
            go went gone
            sit sat sat
            lie lay lain
            say said said
            dream dreamed dreamed
            """),
    )
}
DOUBLED = {"run", "put", "shut", "forget", "sit", "hug"}  # final consonant doubles: running
