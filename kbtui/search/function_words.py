"""Words that say little about what a text is about, by language; they weigh less in a question."""

from __future__ import annotations

import unicodedata

_WORDS = {
    "english": """a about after again all also am an and any are as at be because been before being
        both but by can could did do does doing done down during each either ever every few for from
        further get gets go goes got had has have having he her here hers him his how i if in instead
        into is it its itself just let like may me might more most much must my no nor not now of off
        on once only onto or other our out over own s same she should so some such t than that the
        their them then there these they this those through to too under until up upon us very via was
        we were what when where whether which while who whom whose why will with within without would
        you your""",
    "german": """ab aber alle allem allen aller alles als also am an andere anderem anderen anderer
        auch auf aus bei beim bin bis bist da dabei dadurch dafür damit dann daran darauf darf das dass
        davon dazu dein deine dem den denn der des dessen die dies diese diesem diesen dieser dieses dir
        doch dort du durch ein eine einem einen einer eines er es etwas euch euer für gegen gibt hab habe
        haben hast hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre im immer in ins ist ja
        jede jedem jeden jeder jedes jetzt kann kannst kein keine keinen könnte können machen macht man
        mein meine mich mir mit muss müssen nach nicht nichts noch nun nur ob oder ohne sehr sein seine
        seit sich sie sind so soll sollte sollen sondern sonst über um und uns unser unter vom von vor
        war waren warum was wann wegen weil welche welchem welchen welcher welches wenn wer werden wie
        wieder will wir wird wo wohin wurde wurden würde zu zum zur zwischen""",
    "french": """à au aucun aussi autre aux avec avoir avait c ce ceci cela celle celui ces cet cette
        chaque ci comme comment d dans de depuis des donc dont du elle elles en encore entre est et
        était être eu eux fait faire fois il ils j je l la le les leur leurs lui là m ma mais me même mes
        moi mon n ne ni non nos notre nous on ont ou où par parce pas peu peut plus pour pourquoi qu
        quand que quel quelle quelles quels qui quoi s sa sans se ses si soit son sont sous sur t ta te
        tes toi ton tous tout toute toutes très tu un une vers vos votre vous y""",
    "spanish": """a al algo algún alguna ante antes aquí así aunque cada como cómo con contra cual cuál
        cuando cuándo cuánto de del desde después donde dónde durante e el él ella ellas ellos en entre
        era eran es esa ese eso esta está están este esto estos fue fueron ha hace hacer hacia han hasta
        hay la las le les lo los más me mi mientras mis mucho muy nada ni no nos nosotros nuestro o os
        otra otro para pero poco por porque puede puedo que qué quien quién se sea según ser si sí sido
        sin sobre son su sus también tan tanto te tiene todo todos tu tus un una uno unos ya y yo""",
    "italian": """a ad agli ai al alla alle allo altra altri altro anche ancora avere c che chi ci
        ciò col come con cosa così cui d da dagli dai dal dalla dalle dallo degli dei del della delle
        dello deve di dopo dove due e è ed era essere fa fare fra gli ha hanno ho i il in io l la le lei
        li lo loro lui ma me mi mia mio molto ne nei nel nella nelle nello no noi non nostro o ogni
        per perché però più poi prima può quale quali quando quanto quel quella quelle quello questa
        queste questi questo qui se sei senza si sia sì solo sono sopra sotto su sua sue sugli sui sul
        sulla suo te ti tra tu tutti tutto un una uno vi voi""",
    "dutch": """aan al alle als altijd andere ben bij daar dan dat de der deze die dit doch doen door
        dus een eens en er ge geen geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets
        ik in is ja je kan kon kunnen maar me meer men met mij mijn moet na naar niet niets nog nu of om
        omdat onder ons ook op over reeds te tegen toch toen tot u uit uw van veel voor waar waarom
        wanneer want waren was wat we wel werd wezen wie wij wil worden wordt zal ze zelf zich zij zijn
        zo zonder zou""",
    "portuguese": """a à ao aos aquela aquele aqui as às assim até cada com como da das de dela dele
        deles depois desde do dos e é ela elas ele eles em entre era essa esse esta está este eu faz
        fazer foi for foram há isso isto já lhe mais mas me mesmo meu minha muito na não nas nem no nos
        nós nossa nosso num numa o os ou para pela pelas pelo pelos pode por porque qual quando quanto
        que quem se sem ser será seu seus só sobre sua suas são também te tem ter todo todos tu tudo um
        uma você""",
}


def function_words(languages: list[str]) -> frozenset[str]:
    """The function words of the languages that are known here, folded as the index folds."""
    found: set[str] = set()
    for name in languages:
        text = _WORDS.get(name, "")
        found.update((text if text.isascii() else _folded(text)).split())
    return frozenset(found)


def _folded(text: str) -> str:
    marked = unicodedata.normalize("NFD", text.replace("ß", "ss"))
    return "".join(char for char in marked if not unicodedata.combining(char))
